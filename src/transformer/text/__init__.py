"""Lines of text and the token ids that stand for them."""
