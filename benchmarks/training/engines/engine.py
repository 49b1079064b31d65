"""Main program of every engine of `benchmarks/training/throughput.py`, run in the environment of the engine.

Imports torch, numpy-free, and safetensors alone, so that it works beside any toolkit. An engine's file hands `run` a
function that builds its model from the job's weights. A job is done in one of two ways:

- "check": dropout 0; the loss of the given weights on the first batches, then a few updates, then the loss again;
- "time": dropout on; warm-up updates, timed updates, memory, then the loss with dropout off.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

PAD, BOS, EOS, UNK = range(4)
NORM_EPS, ADAM_BETAS, ADAM_EPS = 1e-6, (0.9, 0.98), 1e-9
CHECK_BATCHES = 2


@dataclass(frozen=True)
class Sizes:
    """The model: N layers a side, post- or pre-norm, one matrix for both embeddings and the projection."""

    N: int
    d_model: int
    d_ff: int
    h: int
    vocabulary: int
    positions: int
    dropout: float
    norm_order: str


@dataclass(frozen=True)
class Batch:
    """Padded token ids; `scored` of the labels are not padding, `source_tokens` of the source are not."""

    src: Tensor
    tgt: Tensor
    labels: Tensor
    scored: int
    source_tokens: int


@dataclass(frozen=True)
class Job:
    """Job of an engine; `weights` have the names of this project's model."""

    sizes: Sizes
    weights: dict[str, Tensor]
    precision: str
    compiled: bool
    plain_attention: bool
    checkpointed: bool
    label_smoothing: float
    learning_rate: float
    clip_norm: float
    device: torch.device

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def weight(self, name: str) -> Tensor:
        """A parameter by its name; the three shared matrices are one."""
        return self.weights[name]

    @property
    def embedding(self) -> Tensor:
        """The matrix shared by both embeddings and the projection: (vocabulary, d_model)."""
        return self.weights["src_embed.embedding.weight"]


class Engine(Protocol):
    """A model being trained.

    Attributes:
        model: with a dropout that `eval()` turns off.
        differences: what differs from the other engines, for the result file.
    """

    model: nn.Module
    differences: tuple[str, ...]

    def step(self, batch: Batch) -> None:
        """One update of the parameters, in the mode that the model is in."""
        ...

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position: (B, T, V)."""
        ...


def attention_names(side: str, layer: int) -> list[str]:
    """Prefixes of the attention blocks of a layer: self, and cross in the decoder."""
    kinds = ["self_attention_block"] + ["cross_attention_block"] * (side == "decoder")
    return [f"{side}.layers.{layer}.{kind}" for kind in kinds]


def copy_into(parameter: Tensor, value: Tensor) -> None:
    """Overwrites a parameter of the same shape."""
    if parameter.shape != value.shape:
        raise ValueError(f"shape={tuple(value.shape)} does not fit {tuple(parameter.shape)}")
    with torch.no_grad():
        parameter.copy_(value)


def copy_linear(linear: Any, job: Job, name: str) -> None:
    """Overwrites a linear layer, bias included."""
    copy_into(linear.weight, job.weight(f"{name}.weight"))
    copy_into(linear.bias, job.weight(f"{name}.bias"))


def copy_norm(norm: Any, job: Job, name: str) -> None:
    """Overwrites a layer normalization and its epsilon."""
    copy_into(norm.weight, job.weight(f"{name}.alpha"))
    copy_into(norm.bias, job.weight(f"{name}.beta"))
    norm.eps = NORM_EPS


def sinusoid(positions: int, d_model: int) -> Tensor:
    """The table of Sec. 3.5, sines and cosines interleaved: (positions, d_model)."""
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.outer(torch.arange(positions, dtype=torch.float64), frequency)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def smoothed_loss(logits: Tensor, batch: Batch, job: Job) -> Tensor:
    """Label-smoothed cross-entropy, the mean over the labels that are not padding."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=PAD, label_smoothing=job.label_smoothing
    )


def fused_adam(model: nn.Module, job: Job) -> torch.optim.Adam:
    """Adam in its fused form, which is the fastest that torch has."""
    return torch.optim.Adam(model.parameters(), lr=job.learning_rate, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)


def evaluate(engine: Engine, batches: list[Batch], job: Job) -> float:
    """Cross-entropy a token without smoothing, dropout off, computed in float32 from the engine's logits."""
    was_training = engine.model.training
    engine.model.eval()
    total = 0.0
    with torch.no_grad(), job.autocast():
        for batch in batches:
            rows = engine.logits(batch)[batch.labels != PAD]
            labels = batch.labels[batch.labels != PAD]
            parts = zip(rows.split(1024), labels.split(1024), strict=True)
            with torch.autocast(job.device.type, enabled=False):
                total += sum(F.cross_entropy(x.float(), y, reduction="sum").item() for x, y in parts)
    engine.model.train(was_training)
    return total / sum(batch.scored for batch in batches)


def check(engine: Engine, batches: list[Batch], job: Job) -> dict[str, Any]:
    """The loss before and after one update on each further batch."""
    losses = [evaluate(engine, batches[:CHECK_BATCHES], job)]
    engine.model.train()
    for batch in batches[CHECK_BATCHES:]:
        engine.step(batch)
    return {"losses": [*losses, evaluate(engine, batches[:CHECK_BATCHES], job)]}


@dataclass(frozen=True)
class Turns:
    """Says when this engine may compute, where others compute in between.

    Attributes:
        begin: file to read a byte from before each turn.
        end: file to write a byte to before that, when the turn before is over.
    """

    begin: int
    end: int

    def wait(self) -> None:
        """Ends this turn and waits for the next."""
        os.write(self.end, b".")
        if not os.read(self.begin, 1):
            raise SystemExit("the benchmark ended before this engine")


def measure(
    engine: Engine, batches: list[Batch], warm_steps: int, job: Job, started: float, turns: Turns
) -> dict[str, Any]:
    """Speed and memory of updates, and the loss with dropout off after them."""
    engine.model.train()
    engine.step(batches[0])
    first_step = time.time() - started
    for batch in [*batches[1:warm_steps], *of_new_shape(batches, warm_steps)]:
        engine.step(batch)
    first_peak = peak_memory(job.device)
    reset_peak(job.device)
    seconds: list[float] = []
    for batch in batches[warm_steps:]:
        turns.wait()
        seconds.append(timed(engine, batch, job.device))
    turns.wait()
    steady_peak = peak_memory(job.device)
    scored = sum(batch.scored for batch in batches[warm_steps:])
    source = sum(batch.source_tokens for batch in batches[warm_steps:])
    return {
        "target_tokens_per_second": scored / sum(seconds),
        "tokens_per_second": (scored + source) / sum(seconds),
        "step_seconds": seconds,
        "seconds_to_first_step": first_step,
        "peak_mib": max(first_peak, steady_peak),
        "steady_peak_mib": steady_peak,
        "losses": [evaluate(engine, batches[:CHECK_BATCHES], job)],
        "dropout_elements": None if job.compiled else dropped_elements(engine, batches[0]),
        "dropout_elements_of_the_paper": paper_dropout_elements(batches[0], job.sizes),
    }


def of_new_shape(batches: list[Batch], warm_steps: int) -> list[Batch]:
    """The first timed batch of each shape that was not met before: a shape is new in the first epoch alone."""
    first = {(batch.src.shape, batch.tgt.shape): batch for batch in reversed(batches)}
    return [batch for batch in batches[warm_steps:] if first[batch.src.shape, batch.tgt.shape] is batch]


class DropoutCounter(TorchDispatchMode):
    """Counts the elements that torch's dropout draws for."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.bernoulli_, torch.ops.aten.native_dropout):
            self.elements += args[0].numel()
        return func(*args, **(kwargs or {}))


def dropped_elements(engine: Engine, batch: Batch) -> int:
    """Elements under dropout in one more update; an engine that draws without torch has a counter of its own."""
    engine.model.train()
    with getattr(engine, "dropout_counter", DropoutCounter)() as counter:
        engine.step(batch)
    return counter.elements


def paper_dropout_elements(batch: Batch, sizes: Sizes) -> int:
    """Elements under dropout with the sites of Sec. 5.4: the embeddings, and the output of each sub-layer."""
    source, target = batch.src.numel() * (1 + 2 * sizes.N), batch.tgt.numel() * (1 + 3 * sizes.N)
    return (source + target) * sizes.d_model


def timed(engine: Engine, batch: Batch, device: torch.device) -> float:
    """Seconds of one update."""
    begun = time.perf_counter()
    engine.step(batch)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def process_memory(field: str) -> float:
    """A figure of this process in MiB: VmRSS now, VmHWM at its highest."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(field))


def peak_memory(device: torch.device) -> float:
    """The highest memory since the last reset in MiB: of the process, or of the tensors on a GPU."""
    return torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else process_memory("VmHWM")


def reset_peak(device: torch.device) -> None:
    """Starts a new highest memory at the present one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def read_batches(path: Path, device: torch.device) -> Iterator[Batch]:
    """The batches in the order in which they were written."""
    tensors = {name: tensor.long() for name, tensor in load_file(path).items()}
    for index in range(len(tensors) // 3):
        src, tgt, labels = (tensors[f"{side}_{index}"] for side in ("src", "tgt", "labels"))
        counts = [int((side != PAD).sum()) for side in (labels, src)]
        yield Batch(src.to(device), tgt.to(device), labels.to(device), *counts)


def run(build: Callable[[Job], Engine], packages: tuple[str, ...] = ()) -> None:
    """Does the job named on the command line and writes the result to the file that the job names."""
    after_import = process_memory("VmRSS")
    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(order["threads"])
    torch.manual_seed(order["seed"])
    device = torch.device(order["device"])
    weights = {name: tensor.to(device) for name, tensor in load_file(order["weights"]).items()}
    keys = ("precision", "compiled", "plain_attention", "checkpointed", "label_smoothing", "learning_rate", "clip_norm")
    job = Job(Sizes(**order["sizes"]), weights, **{key: order[key] for key in keys}, device=device)
    batches = list(read_batches(Path(order["batches"]), device))
    engine = build(job)
    weights.clear()  # copied by now, and not needed for training
    if order["mode"] == "check":
        result = check(engine, batches[: CHECK_BATCHES + order["check_steps"]], job)
    else:
        result = measure(engine, batches, order["warm_steps"], job, order["started"], Turns(*order["turns"]))
    result |= {
        "after_import_mib": after_import,
        "parameters": sum(parameter.numel() for parameter in engine.model.parameters() if parameter.requires_grad),
        "differences": engine.differences,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", *packages)},
    }
    Path(order["result"]).write_text(json.dumps(result))
