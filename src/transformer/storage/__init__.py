"""Files on disk that are complete and unchanged, or rejected."""
