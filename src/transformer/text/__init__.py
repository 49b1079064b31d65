"""Text processing without a model: reading lines and splitting sentences."""
