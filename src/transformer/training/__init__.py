"""Training: objective, schedule, optimizer, step, loop, checkpoints and reports."""
