"""Corpus examination: finds errors in two parallel text files and locates them, without a model."""
