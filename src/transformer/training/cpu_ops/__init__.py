"""CPU implementations of the blocks' functions for training, based on the compiled kernels."""
