"""What users hold: translators, text generators and classifiers loaded from a model folder."""
