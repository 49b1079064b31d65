"""Jobs of the engines of `benchmarks/training/throughput.py`: batches, weights and processes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from transformer import build_transformer
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.data.token_batching import batch_by_tokens
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS

HERE = Path(__file__).parent / "engines"
FILES = {
    "ours": "ours.py", "transformers": "with_transformers.py", "torch-nn": "with_torch_nn.py",
    "eole": "with_eole.py", "joeynmt": "with_joeynmt.py",
}  # fmt: skip
SETTINGS = {
    "ours": {"compile", "kept", "checkpointed"}, "transformers": {"compile", "plain", "kept"},
    "torch-nn": {"compile", "plain", "kept"}, "eole": {"compile", "kept"}, "joeynmt": {"kept"},
}  # fmt: skip
PRE_NORM_ONLY = ("eole",)
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
SIZES = ("N", "d_model", "d_ff", "h", "dropout")
LARGEST = str(2**31 - 1)
KEPT = {
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": LARGEST, "MALLOC_TOP_PAD_": str(2**26),
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A model, its rate and how many updates are done."""

    N: int
    d_model: int
    d_ff: int
    h: int
    dropout: float
    learning_rate: float
    warm_steps: int
    steps: int
    check_steps: int


SHAPES = {
    "tiny": Shape(4, 128, 256, 4, 0.3, 1e-3, warm_steps=4, steps=24, check_steps=4),
    "base": Shape(6, 512, 2048, 8, 0.1, 1e-4, warm_steps=2, steps=5, check_steps=2),
    "big": Shape(6, 1024, 4096, 16, 0.3, 1e-4, warm_steps=2, steps=5, check_steps=2),
}


@dataclass(frozen=True)
class Named:
    """An engine's name, taken apart."""

    name: str
    toolkit: str
    precision: str
    compiled: bool
    plain_attention: bool
    kept: bool
    checkpointed: bool

    @property
    def norm_order(self) -> str:
        """The order that the toolkit can do."""
        return "pre" if self.toolkit in PRE_NORM_ONLY else "post"

    def in_float32(self) -> "Named":
        """The same in float32, without settings that change speed alone."""
        return named(f"{self.toolkit}-fp32" + "+plain" * self.plain_attention)


def named(name: str) -> Named:
    """Reads e.g. `transformers-bf16+compile`."""
    engine, *options = name.split("+")
    toolkit, _, precision = engine.rpartition("-")
    if toolkit not in FILES or precision not in PRECISIONS:
        raise SystemExit(f"engine={name!r} is unknown; give one of {', '.join(FILES)} with -fp32 or -bf16")
    if not {*options} <= SETTINGS[toolkit]:
        raise SystemExit(f"engine={name!r} has no such setting; choose of {', '.join(sorted(SETTINGS[toolkit]))}")
    flags = [option in options for option in ("compile", "plain", "kept", "checkpointed")]
    return Named(name, toolkit, PRECISIONS[precision], *flags)


def multi30k(vocabulary: int, n_batches: int) -> tuple[list[PairBatch], int]:
    """Real batches and the size of the vocabulary."""
    folder = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data")) / "multi30k"
    sides = [(folder / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    tokenizer = BytePairTokenizer.train([*sides[0], *sides[1]], TokenizerConfig(vocab_size=vocabulary))
    source, target = ([np.array(ids, np.int32) for ids in tokenizer.encode_batch(side)] for side in sides)
    lengths = np.array([[len(s) + 1, len(t) + 1] for s, t in zip(source, target, strict=True)], np.int32)
    planned = batch_by_tokens(lengths, 4096, seed=1, epoch=0)[:n_batches]
    batches = [pair_batch([source[i] for i in ids], [target[i] for i in ids]) for ids in planned]
    return batches, tokenizer.vocab_size


def random_pairs(vocabulary: int, n_batches: int, pairs: int, length: int) -> list[PairBatch]:
    """Batches of sentence pairs of one length, EOS included, without padding."""
    sides = np.random.default_rng(1).integers(
        N_SPECIAL_TOKENS, vocabulary, (2, n_batches, pairs, length - 1), dtype=np.int32
    )
    return [pair_batch([*source], [*target]) for source, target in zip(*sides, strict=True)]


def random_weights(shape: Shape, vocabulary: int, positions: int, norm_order: str) -> dict[str, torch.Tensor]:
    """The weights that all engines start from, by the names of this project's model."""
    torch.manual_seed(1)
    sizes = {name: getattr(shape, name) for name in SIZES}
    model = build_transformer(
        vocabulary, vocabulary, positions, positions, **sizes, norm_order=norm_order, share_embeddings="all"
    )
    for name, parameter in model.named_parameters():
        if name.endswith((".alpha", ".beta")):  # gains and offsets that a mix-up of norms would show
            torch.nn.init.normal_(parameter, mean=float(name.endswith(".alpha")), std=0.1)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def make_job(shape: Shape, batches: list[PairBatch], vocabulary: int, folder: Path) -> dict[str, Any]:
    """Writes batches and weights, one set for each norm order; returns what all jobs have in common."""
    tensors = {
        f"{side}_{index}": getattr(batch, side).to(torch.int32)
        for index, batch in enumerate(batches)
        for side in ("src", "tgt", "labels")
    }
    save_file(tensors, folder / "batches.safetensors")
    positions = max(max(batch.src.size(1), batch.tgt.size(1)) for batch in batches)
    for norm_order in ("pre", "post"):
        save_file(random_weights(shape, vocabulary, positions, norm_order), folder / f"{norm_order}.safetensors")
    sizes = {name: getattr(shape, name) for name in SIZES} | {"vocabulary": vocabulary, "positions": positions}
    return {
        "batches": str(folder / "batches.safetensors"), "sizes": sizes, "label_smoothing": 0.1, "clip_norm": 1.0,
        "learning_rate": shape.learning_rate, "warm_steps": shape.warm_steps, "check_steps": shape.check_steps,
    }  # fmt: skip


class Running:
    """An engine in its own process; one that is timed computes on request.

    Args:
        engine: what to start.
        order: the job.
        folder: for its files, of which weights and batches are there.
        python: its interpreter.
    """

    def __init__(self, engine: Named, order: dict[str, Any], folder: Path, python: str) -> None:
        self.result_file, self.words = folder / f"{engine.name}.result.json", folder / f"{engine.name}.err"
        self.result_file.unlink(missing_ok=True)
        (begin, self.begin), (self.end, end) = os.pipe(), os.pipe()
        order = order | {"result": str(self.result_file), "turns": [begin, end], "started": time.time()}
        path = folder / f"{engine.name}.job.json"
        path.write_text(json.dumps(order))
        environment = {**os.environ, **(KEPT if engine.kept else {})}
        environment.pop("OMP_NUM_THREADS", None)
        with self.words.open("wb") as words:
            self.process = subprocess.Popen(
                [python, str(HERE / FILES[engine.toolkit]), str(path)], stdout=words, stderr=words, env=environment,
                pass_fds=(begin, end),
            )  # fmt: skip
        os.close(begin)
        os.close(end)
        self.is_at_work = order["mode"] == "time" and bool(os.read(self.end, 1))  # ready for the first turn

    def turn(self) -> None:
        """One timed update, if any is left."""
        os.write(self.begin, b".")
        self.is_at_work = bool(os.read(self.end, 1))

    def result(self) -> dict[str, Any]:
        """Waits for the end and returns the result, or the end of its stderr as `error`."""
        status = self.process.wait()
        os.close(self.begin)
        os.close(self.end)
        if status or not self.result_file.exists():
            return {"error": self.words.read_text(errors="replace")[-2000:] or f"exit status {status}"}
        return json.loads(self.result_file.read_text())


@dataclass(frozen=True)
class Runner:
    """Starts engines as processes of their own."""

    job: dict[str, Any]
    folder: Path
    pythons: dict[str, str]

    def check(self, engine: Named, norm_order: str | None = None) -> dict[str, Any]:
        """The losses of an engine."""
        return self._start(engine, "check", 1, norm_order).result()

    def timed(self, engines: list[Named], seed: int) -> list[dict[str, Any]]:
        """The timings of engines that are in memory at the same time and compute in turn, an update each."""
        running = [self._start(engine, "time", seed) for engine in engines]
        while any(process.is_at_work for process in running):
            for process in running:
                if process.is_at_work:
                    process.turn()
        return [process.result() for process in running]

    def _start(self, engine: Named, mode: str, seed: int, norm_order: str | None = None) -> Running:
        norm_order = norm_order or engine.norm_order
        sizes = self.job["sizes"] | {"norm_order": norm_order}
        if mode == "check":
            sizes["dropout"] = 0.0
        variables = {
            "mode": mode,
            "seed": seed,
            "precision": engine.precision,
            "compiled": engine.compiled,
            "plain_attention": engine.plain_attention,
            "checkpointed": engine.checkpointed,
            "sizes": sizes,
            "weights": str(self.folder / f"{norm_order}.safetensors"),
        }
        return Running(engine, self.job | variables, self.folder, self.pythons.get(engine.toolkit, sys.executable))
