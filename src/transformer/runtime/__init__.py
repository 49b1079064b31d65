"""Process and machine: memory allocator and description of the hardware."""
