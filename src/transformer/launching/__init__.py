"""Batch scripts and manifests that run a command of the program on a cluster."""
