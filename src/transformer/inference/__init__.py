"""Conversion of models for fast inference on CPUs and GPUs."""
