"""Work on a large file in shards: any number of processes, on any number of machines, share a folder of results."""
