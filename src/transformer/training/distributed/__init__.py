"""Training with several processes: process groups and data parallelism."""
