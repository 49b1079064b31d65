"""Text-to-text translation around the search over token ids."""
