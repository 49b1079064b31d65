"""BERT: an encoder that reads a text as a whole."""
