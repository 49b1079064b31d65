"""From text files to batches: readers -> checks -> token store -> token-budget batches."""
