"""Process and machine: memory allocator, worker processes and description of the hardware."""
