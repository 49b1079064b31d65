"""Corpora of the models that come with the program, made of texts whose licence allows it."""
