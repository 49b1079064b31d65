"""Runs a Ray cluster of two nodes on this machine until standard input ends; prints its address."""

import sys

from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
