"""Data pipeline: readers, filters, token store, and batches within a token budget."""
