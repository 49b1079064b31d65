"""Optimizer, learning-rate schedules, optimizer state and weight averaging."""
