"""CPU implementations of the blocks' functions for training."""
