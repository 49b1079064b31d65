"""Forward and backward passes of a model, step by step, to look at."""
