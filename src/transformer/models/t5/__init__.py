"""T5: an encoder and a decoder, text to text."""
