"""Models rewritten for fast inference."""
