"""Estimates of floating-point operations and memory before a run starts."""
