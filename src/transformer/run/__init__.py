"""Training runs: from a recipe to a folder that holds a trained model."""
