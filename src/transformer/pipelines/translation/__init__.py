"""Translation of text, built around the search over token ids."""
