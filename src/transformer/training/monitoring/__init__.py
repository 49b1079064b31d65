"""Progress, metrics and layer statistics of a run."""
