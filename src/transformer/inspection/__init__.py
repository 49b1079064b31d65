"""Looking into a model and a run: sizes, attention, pictures."""
