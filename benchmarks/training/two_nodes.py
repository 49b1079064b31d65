"""Overhead of a second machine in a training step: two network namespaces as nodes under torchrun.

Trains the same recipe, with dropout, on one process, on two nodes with DDP and on two nodes with FSDP2, one thread per
process, in turn. The losses must agree, which shows that all three have done the same work. Without communication, two
nodes would take half the step of one process; the additional time is printed as their overhead. Needs Linux and
permission to create network namespaces (root); without it, the script reports this and exits.

Usage: sudo python benchmarks/training/two_nodes.py [--out FILE]
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch

from transformer.run.recipe import parse_recipe
from transformer.storage.checkpoint_paths import checkpoint_folder

STEPS, LOG_EVERY, ROUNDS, PORT = 24, 4, 2, 29517
NODES = ("transformer-node-0", "transformer-node-1")
ADDRESSES = ("10.177.0.1", "10.177.0.2")
VARIANTS = ("one process", "two nodes, ddp", "two nodes, fsdp")
PARAMETERS_BYTES = 4


def write_recipe(folder: Path) -> Path:
    """A recipe on 3,000 random pairs of the length of Multi30k's: Transformer-Tiny's sizes, two micro-batches."""
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(1, 7))) for _ in range(3000)]
    for side in ("src", "tgt"):
        lines = [" ".join(draw.choices(words, k=draw.randint(4, 16))) for _ in range(3000)]
        (folder / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    tree = {
        "data": {"source": str(folder / "src"), "target": str(folder / "tgt"), "validation_pairs": 2},
        "tokenizer": {"vocab_size": 4000},
        "model": {"d_model": 128, "N": 4, "h": 4, "d_ff": 256, "dropout": 0.3, "src_seq_len": 99, "tgt_seq_len": 99},
        "training": {
            "max_steps": STEPS, "warmup_steps": STEPS, "accumulation": 2, "threads": 1, "log_every": LOG_EVERY,
            "precision": "float32", "batch_tokens": 4096, "validate_every": STEPS, "save_every": STEPS,
        },
    }  # fmt: skip
    path = folder / "recipe.toml"
    path.write_text(parse_recipe(tree).to_toml(), encoding="utf-8")
    return path


def ip(*arguments: str) -> None:
    """Runs one command of iproute2."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def two_nodes() -> Generator[None]:
    """Two network namespaces, each with one end of a virtual cable."""
    try:
        for name in NODES:
            ip("netns", "add", name)
        ip("link", "add", "cable0", "netns", NODES[0], "type", "veth", "peer", "name", "cable1", "netns", NODES[1])
        for index, (name, address) in enumerate(zip(NODES, ADDRESSES, strict=True)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"cable{index}")
            ip("-n", name, "link", "set", f"cable{index}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NODES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def start_node(index: int, recipe: Path, run: Path, strategy: str) -> subprocess.Popen[str]:
    """The same command on every node, but for the node's number."""
    launch = [
        "ip", "netns", "exec", NODES[index], sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
        "--nproc-per-node=1", f"--node-rank={index}", f"--master-addr={ADDRESSES[0]}", f"--master-port={PORT}",
        "-m", "--", "transformer", "train", recipe, "--run", run, "--set", f"training.distribution={strategy}",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"cable{index}"}
    return subprocess.Popen(
        map(str, launch), env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def train(variant: str, recipe: Path, run: Path) -> None:
    """Runs a variant to its end."""
    if variant == "one process":
        command = [sys.executable, "-m", "transformer", "train", str(recipe), "--run", str(run)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        codes, said = [ended.returncode], ended.stderr
    else:
        nodes = [start_node(index, recipe, run, variant.split()[-1]) for index in (0, 1)]
        said = "".join(node.communicate(timeout=200)[1] for node in nodes)
        codes = [node.returncode for node in nodes]
    if any(codes):
        raise SystemExit(f"{variant} ended with {codes}:\n{said}")


def figures_of(run: Path) -> dict[str, list[float]]:
    """Losses and seconds a step of every line of metrics; the first line, which warms up, has no seconds."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in lines if row["kind"] == "train"]
    tokens = [0, *(row["target_tokens"] for row in rows)]
    seconds = [
        (after - before) / row["target_tokens_per_second"] / LOG_EVERY
        for before, after, row in zip(tokens[:-1], tokens[1:], rows, strict=True)
    ]
    return {"losses": [row["loss"] for row in rows], "seconds": seconds[1:]}


def parameters_of(run: Path) -> int:
    """Numbers in the model, from its size on disk."""
    return (checkpoint_folder(run, STEPS) / "model" / "model.safetensors").stat().st_size // PARAMETERS_BYTES


def measure(folder: Path) -> dict[str, object]:
    """All variants in turn, several times."""
    recipe = write_recipe(folder)
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    losses: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        for variant in VARIANTS:
            run = folder / f"{VARIANTS.index(variant)}-{number}"
            train(variant, recipe, run)
            figures = figures_of(run)
            seconds[variant] += figures["seconds"]
            losses[variant] = figures["losses"]
    apart = max(
        abs(a - b) / b for variant in VARIANTS[1:] for a, b in zip(losses[variant], losses["one process"], strict=True)
    )
    if apart > 1e-4:
        raise SystemExit(f"the losses differ by {apart:.1e}, so the timings compare different work")
    medians = {variant: statistics.median(values) for variant, values in seconds.items()}
    ideal = medians["one process"] / 2
    return {
        "parameters": parameters_of(folder / "0-0"),
        "seconds a step": medians,
        "overhead seconds a step": {variant: medians[variant] - ideal for variant in VARIANTS[1:]},
        "speed-up": {variant: medians["one process"] / medians[variant] for variant in VARIANTS[1:]},
        "largest relative difference of losses": apart,
    }


def main() -> None:
    """Measures, prints and keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    try:
        with two_nodes(), tempfile.TemporaryDirectory() as folder:
            figures = measure(Path(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        print(f"skipped: no network namespaces here ({reason}); run as root on Linux with iproute2")
        return
    for key, value in figures.items():
        print(f"{key}: {json.dumps(value)}")
    if arguments.out:
        record = {
            "command": "python benchmarks/training/two_nodes.py", "machine": platform.platform(terse=True),
            "cores": os.cpu_count(), "threads a process": 1, "rounds": ROUNDS, "steps": STEPS,
            "torch": torch.__version__, "figures": figures,
        }  # fmt: skip
        arguments.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
