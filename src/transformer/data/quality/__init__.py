"""The corpus doctor: what is wrong with two text files, and where, told without a model."""
