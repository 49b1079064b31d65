"""The process and the machine: memory allocator and hardware description."""
