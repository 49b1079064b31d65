"""Speed and memory of preparing a large corpus, and the cost of batches relative to a training step.

Creates synthetic pairs whose lengths and words are drawn from newstest2014, prepares 1 million and 5 million of them,
and iterates over one epoch; every task runs in its own process. The baseline is `encode_batch_fast` of the tokenizers
library alone, on the same text in memory, at the best of three chunk sizes, on all cores, between the rounds of the
same run. Memory is RssAnon of the process and its children, sampled every 20 ms.

Usage: python benchmarks/data/preparation.py [--pairs 1000000 5000000] [--out FILE]
A million pairs need about half a GB of disk.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from transformer.data.config import DataConfig
from transformer.data.readers import read_pairs
from transformer.runtime.machine import machine
from transformer.tokenizers.config import TokenizerConfig

DATA = Path(os.environ.get("TRANSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data"))
VOCABULARY, MAX_LENGTH, BATCH_TOKENS, SEED = 8000, 256, 4096, 1
RIVAL_PAIRS, RIVAL_CHUNKS, ROUNDS, STEPS = 100_000, (512, 2048, 8192), 3, 8
MIB = 2**20


def write_corpus(folder: Path, pairs: int) -> None:
    """Writes `source.txt` and `target.txt`: lengths of newstest2014 pairs, words of newstest2014."""
    generator = np.random.default_rng(SEED)
    lines = [(DATA / "wmt" / f"newstest2014.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    words = [np.array(" ".join(side).split(), dtype=object) for side in lines]
    counts = np.array([[len(line.split()) for line in side] for side in lines])
    with (folder / "source.txt").open("w") as source, (folder / "target.txt").open("w") as target:
        for start in range(0, pairs, 100_000):
            drawn = generator.integers(0, counts.shape[1], min(100_000, pairs - start))
            for file, side, sizes in zip((source, target), words, counts[:, drawn], strict=True):
                text = side[generator.integers(0, len(side), sizes.sum())].tolist()
                ends = np.cumsum(sizes)
                file.writelines(" ".join(text[end - size : end]) + "\n" for end, size in zip(ends, sizes, strict=True))


def rss_anon() -> int:
    """Anonymous resident bytes of this process and its children."""
    total = 0
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    for process in ("self", *(child for some in children for child in some)):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:  # it has ended
            continue
        line = next((line for line in status.splitlines() if line.startswith("RssAnon")), "RssAnon: 0 kB")
        total += int(line.split()[1]) * 1024
    return total


@contextmanager
def phase(name: str, figures: dict[str, Any]) -> Generator[None]:
    """Notes seconds and the peak of memory of what is done within."""
    ended = threading.Event()
    peak = [rss_anon()]

    def watch() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], rss_anon())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        yield
    finally:
        figures[name] = {"seconds": time.perf_counter() - started}
        ended.set()
        watcher.join()
        figures[name]["peak_bytes"] = max(peak[0], rss_anon())


def preparation_of(folder: Path) -> Any:
    """The steps from the text of a folder to a corpus."""
    from transformer.data.prepare import CorpusBuilder

    settings = DataConfig(
        source=str(folder / "source.txt"), target=str(folder / "target.txt"), prepared=str(folder / "prepared")
    )
    return CorpusBuilder(settings, SEED, folder)


def learn(folder: Path) -> dict[str, Any]:
    """Reads every file, counts the pairs, draws those held out and trains the tokenizer."""
    figures: dict[str, Any] = {}
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    with phase("fingerprint", figures):
        preparation = preparation_of(folder)
    with phase("survey", figures):
        figures["pairs"] = preparation.scan().pairs
    with phase("tokenizer", figures):
        preparation.train_tokenizers(TokenizerConfig(vocab_size=VOCABULARY))
    return figures


def encode(folder: Path) -> dict[str, Any]:
    """Prepares the tokens."""
    figures: dict[str, Any] = {}
    for store in (folder / "prepared").glob("tokens-*"):
        shutil.rmtree(store)
    preparation = preparation_of(folder)
    tokenizers = preparation.train_tokenizers(TokenizerConfig(vocab_size=VOCABULARY))
    with phase("prepare", figures):
        preparation.prepare(tokenizers, (MAX_LENGTH, MAX_LENGTH))
    return figures


def iterate(folder: Path) -> dict[str, Any]:
    """Starts from what was prepared and fetches every batch of an epoch."""
    from transformer.data.token_batching import batch_by_tokens

    figures: dict[str, Any] = {}
    with phase("start_again", figures):
        preparation = preparation_of(folder)
        preparation.scan()
        tokenizers = preparation.train_tokenizers(TokenizerConfig(vocab_size=VOCABULARY))
        corpus = preparation.prepare(tokenizers, (MAX_LENGTH, MAX_LENGTH))
    with phase("plan", figures):
        plan = batch_by_tokens(corpus.train.lengths, BATCH_TOKENS, SEED, 0)
    with phase("fetch", figures):
        tokens = sum(corpus.train.fetch(ids).scored_tokens for ids in plan)
    assert tokens == corpus.report.target_tokens
    return figures | {"batches": len(plan), "report": [f"{title}: {text}" for title, text in corpus.report.rows()]}


def rival(folder: Path) -> dict[str, float]:
    """Pairs a second of `encode_batch_fast` alone, for each chunk size."""
    pair = preparation_of(folder).train_tokenizers(TokenizerConfig(vocab_size=VOCABULARY))
    library = pair.source._merges
    lines = islice(read_pairs(folder / "source.txt", folder / "target.txt"), RIVAL_PAIRS)
    texts = [[pair.source.prepare(line) for line in side] for side in zip(*lines, strict=True)]
    rates: dict[str, float] = {}
    for chunk in RIVAL_CHUNKS:
        started = time.perf_counter()
        for side in texts:
            for start in range(0, len(side), chunk):
                library.encode_batch_fast(side[start : start + chunk], add_special_tokens=False)
        rates[str(chunk)] = len(texts[0]) / (time.perf_counter() - started)
    return rates


def steps(folder: Path) -> dict[str, Any]:
    """Seconds of a step of Transformer-Tiny, and how long each waited for its batch over the edge of an epoch."""
    import torch

    from transformer import build_transformer
    from transformer.data.dataset import PairDataset
    from transformer.data.prefetch import prefetch
    from transformer.data.token_batching import batch_by_tokens
    from transformer.data.token_store import TokenStore
    from transformer.training.objectives.translation import TranslationObjective
    from transformer.training.optim.adam import make_optimizer
    from transformer.training.step import TrainingState, train_step

    torch.manual_seed(SEED)
    (store,) = (folder / "prepared").glob("tokens-*")
    source = PairDataset(TokenStore(store / "train"))
    model = build_transformer(
        VOCABULARY, VOCABULARY, MAX_LENGTH, MAX_LENGTH, d_model=128, N=4, h=4, d_ff=256, share_embeddings="all"
    )
    objective = TranslationObjective(model, 0.1)
    state = TrainingState(objective, make_optimizer(objective), 0, SEED)

    def ids() -> Generator[Any]:
        yield from batch_by_tokens(source.lengths, BATCH_TOKENS, SEED, 0)[-STEPS:]
        yield from batch_by_tokens(source.lengths, BATCH_TOKENS, SEED, 1)

    seconds: list[float] = []
    waits: list[float] = []
    with prefetch(ids(), source.fetch) as batches:
        stream = iter(batches)
        for _ in range(3 * STEPS):
            started = time.perf_counter()
            batch = next(stream)
            ready = time.perf_counter()
            train_step(state, [batch], 1e-3, 1.0)
            waits.append(ready - started)
            seconds.append(time.perf_counter() - ready)
    return {"step_seconds": statistics.median(seconds), "waits": waits[1:], "seconds": seconds[1:]}


def corpus(folder: Path) -> dict[str, Any]:
    """Writes the text of a folder, whose name is the number of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(folder, int(folder.name))
    return {}


TASKS = {task.__name__: task for task in (corpus, learn, encode, iterate, rival, steps)}


def plan_of(sizes: list[int]) -> list[tuple[str, int]]:
    """The tasks in order: each in a process of its own, the rival between the rounds."""
    tasks: list[tuple[str, int]] = []
    for size in sizes:
        rounds = ROUNDS if size == min(sizes) else 1
        tasks += [("corpus", size), ("learn", size), *([("rival", size), ("encode", size)] * rounds), ("iterate", size)]
    return [*tasks, ("rival", sizes[-1]), ("steps", sizes[-1])]


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the targets name, from the results of all tasks."""
    sizes = sorted({result["size"] for result in results})
    runs = {size: {} for size in sizes}
    encodes: dict[int, list[float]] = {size: [] for size in sizes}
    for result in results:
        runs[result["size"]].update({name: value for name, value in result.items() if isinstance(value, dict)})
        if result["task"] == "encode":
            encodes[result["size"]].append(result["size"] / result["prepare"]["seconds"])
    by_task = {result["task"]: result for result in results}
    rivals = [result for result in results if result["task"] == "rival"]
    best = max(map(str, RIVAL_CHUNKS), key=lambda chunk: statistics.median(result[chunk] for result in rivals))
    alone = [result[best] for result in rivals]
    peaks = {size: {name: value["peak_bytes"] for name, value in run.items()} for size, run in runs.items()}
    small, large = sizes[0], sizes[-1]
    growth = {name: (peak - peaks[small][name]) / max(1, large - small) for name, peak in peaks[large].items()}
    run, step, iterated = runs[large], by_task["steps"], by_task["iterate"]
    batch_seconds = (run["plan"]["seconds"] + run["fetch"]["seconds"]) / iterated["batches"]
    return {
        "encode_batch_fast_pairs_per_second": {"chunk": int(best), **spread(alone)},
        "prepare_pairs_per_second": {size: spread(rates) for size, rates in encodes.items()},
        "prepare_share_of_encode_batch_fast": {
            size: statistics.median(rates) / statistics.median(alone) for size, rates in encodes.items()
        },
        "seconds": {size: {name: value["seconds"] for name, value in run.items()} for size, run in runs.items()},
        "peak_rss_anon_mib": {size: {n: v / MIB for n, v in peak.items()} for size, peak in peaks.items()},
        "growth_bytes_per_pair": growth,
        "batch_milliseconds": 1000 * batch_seconds,
        "step_seconds": step["step_seconds"],
        "data_share_of_step_percent": 100 * batch_seconds / step["step_seconds"],
        "wait_with_prefetch_percent": 100 * sum(step["waits"]) / sum(step["seconds"]),
        "longest_wait_with_prefetch_seconds": max(step["waits"]),
        "report": iterated["report"],
    }


def main() -> None:
    """Runs all tasks that have no result yet and prints the figures; or one task alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--folder", type=Path, default=Path("data-benchmark"), help="for text, tokens and results")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", type=int, help="maximum number of tasks; the same command continues with the rest")
    parser.add_argument("--task", nargs=2, metavar=("TASK", "PAIRS"), help="do one task in this process")
    arguments = parser.parse_args()
    if arguments.task:
        name, size = arguments.task
        print(json.dumps({"task": name, "size": int(size), **TASKS[name](arguments.folder / size)}))
        return
    notes = arguments.folder / "results.jsonl"
    results = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    tasks = plan_of(arguments.pairs)
    for name, size in tasks[len(results) :][: arguments.tasks]:
        call = [sys.executable, __file__, "--folder", str(arguments.folder), "--task", name, str(size)]
        line = subprocess.run(call, stdout=subprocess.PIPE, check=True, text=True).stdout
        print(line, end="", file=sys.stderr)
        results.append(json.loads(line))
        with notes.open("a") as file:
            file.write(line)
    if len(results) < len(tasks):
        return
    result = {
        "command": f"python benchmarks/data/preparation.py --pairs {' '.join(map(str, arguments.pairs))}",
        "machine": machine(),
        "versions": {name: version(name) for name in ("torch", "tokenizers", "pyarrow", "numpy")}
        | {"python": platform.python_version()},
        "corpus": "lengths and words of newstest2014 en-de; byte-level BPE, 8,000 tokens, joint; 30 tokens a side",
        **summary(results),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
