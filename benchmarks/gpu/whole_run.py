"""`transformer train` on a GPU from start to end, stopped and resumed, and FSDP2 of one rank: `make gpu-3`.

Measures, in this order, and skips what the file of results has:
- a whole run of `transformer train` with the paper's base, with validation, checkpoints and the report, eager and with
  `training.compile`, and with `training.batch_tokens=auto`, which chooses the batch by the memory;
- the eager run once more, stopped by SIGTERM and resumed by the same command: its parameters beside those of the run
  that was not stopped, which are equal to the last bit if the GPU's kernels are deterministic;
- ten updates of base and big under FSDP2 of one rank, beside the same updates without, in turn.

The corpus is Multi30k if TRANSFORMER_DATA names a folder with it, and otherwise sentences of random words.

Usage: python benchmarks/gpu/whole_run.py [--out FOLDER] [--minutes 7] [--again]
"""

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from ledger import ROOT, Ledger, in_turn, peak_mib, ratios, read_arguments, release_memory
from safetensors.torch import load_file
from training_step import Ours, Setting

from transformer.data.batch import PairBatch
from transformer.storage.checkpoint_paths import MODEL, checkpoint_folder, checkpoint_steps
from transformer.training.distributed.data_parallel import distribute_model
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step

UPDATES, SMALL_UPDATES = 400, 300
PAIRS, SMALL_PAIRS, WORDS = 20_000, 200, 4000
FSDP_TOLERANCE = 1e-3
SMALL = {
    "model.d_model": 16, "model.N": 1, "model.h": 2, "model.d_ff": 24, "tokenizer.vocab_size": 300,
    "training.threads": 1,
}  # fmt: skip


class Runs:
    """Runs of `transformer train` in a folder.

    Args:
        folder: Folder of the corpus and the runs.
        in_small: Whether the model and the corpus are tiny.
        device: "cpu" or "cuda".
    """

    def __init__(self, folder: Path, in_small: bool, device: str) -> None:
        self.folder = folder
        self.updates = SMALL_UPDATES if in_small else UPDATES
        every = self.updates // 2
        self.settings: dict[str, object] = {
            "training.max_steps": self.updates, "training.validate_every": every, "training.save_every": every,
            "training.log_every": self.updates // 20, "training.warmup_steps": self.updates // 4,
            "training.device": device, "training.seed": 1,
            "training.batch_tokens": 256 if in_small else 16_384,
            **(SMALL if in_small else {"model.preset": "base", "tokenizer.vocab_size": 16_000}),
        }  # fmt: skip
        self.sides = corpus(folder, SMALL_PAIRS if in_small else PAIRS)

    def train(self, name: str, stop_at: int = 0, **changes: object) -> dict[str, Any]:
        """Trains once, and returns the figures that the run recorded.

        Args:
            name: Name of the run's folder.
            stop_at: Step after which the run is sent SIGTERM; 0 lets it end.
            changes: Settings by the last part of their key in the section `training`.

        Raises:
            RuntimeError: The command failed.
        """
        settings = self.settings | {f"training.{key}": value for key, value in changes.items()}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        options = [f"--set={key}={text}" for key, text in texts.items()]
        run, log = self.folder / name, self.folder / f"{name}.log"
        command = [sys.executable, "-m", "transformer", "train", *map(str, self.sides), "--run", str(run), *options]
        begun = time.monotonic()
        with log.open("ab") as file, subprocess.Popen(command, stdout=file, stderr=file, env=environment()) as process:
            if stop_at:
                stop(process, run, stop_at)
        wanted = 128 + signal.SIGTERM if stop_at else 0
        text = log.read_text(errors="replace")
        if process.returncode != wanted:
            raise RuntimeError(f"exit code {process.returncode} instead of {wanted}: {text[-1500:]}")
        return {"seconds": time.monotonic() - begun, **recorded(run), "plan": plan_lines(text)}

    def parameters(self, name: str) -> dict[str, torch.Tensor]:
        """Returns the parameters of the newest checkpoint of a run."""
        run = self.folder / name
        newest = checkpoint_folder(run, checkpoint_steps(run)[-1])
        return load_file(next((newest / MODEL).rglob("*.safetensors")))


def environment() -> dict[str, str]:
    """Returns the variables of a command that runs this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def corpus(folder: Path, n_pairs: int) -> tuple[Path, Path]:
    """Returns the files of a corpus: Multi30k, or random words with the same words reversed."""
    folder_of_data = Path(os.environ.get("TRANSFORMER_DATA", "")) / "multi30k"
    sides = [folder_of_data / f"train.{language}" for language in ("en", "de")]
    if "TRANSFORMER_DATA" in os.environ and sides[0].exists():
        lines = [side.read_text(encoding="utf-8").splitlines()[:n_pairs] for side in sides]
    else:
        draw = random.Random(1)
        words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 8))) for _ in range(WORDS)]
        rows = [draw.choices(words, k=draw.randint(4, 30)) for _ in range(n_pairs)]
        lines = [[" ".join(row) for row in rows], [" ".join(reversed(row)) for row in rows]]
    paths = folder / "corpus.en", folder / "corpus.de"
    for path, side in zip(paths, lines, strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


def stop(process: subprocess.Popen[bytes], run: Path, step: int) -> None:
    """Sends SIGTERM once a run has recorded a step."""
    while process.poll() is None:
        if any(record["step"] >= step for record in training_records(run)):
            process.send_signal(signal.SIGTERM)
            return
        time.sleep(0.01)


def training_records(run: Path) -> list[dict[str, Any]]:
    """Returns the lines of training metrics that a run has written so far."""
    path = run / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def recorded(run: Path) -> dict[str, Any]:
    """Returns speed and loss of a run; the speed is the median of the second half, in which all shapes are known."""
    records = training_records(run)
    speeds = [record["target_tokens_per_second"] for record in records[len(records) // 2 :]]
    return {"target_tokens_per_second": statistics.median(speeds), "loss": records[-1]["loss"],
            "steps": records[-1]["step"]}  # fmt: skip


def plan_lines(text: str) -> list[str]:
    """Returns the lines of the plan that tell the device, the batch and the memory."""
    return [line for line in text.splitlines() if re.match(r"\s*(training|device|memory|model)\b", line)]


def resume(runs: Runs) -> dict[str, Any]:
    """Stops a run, resumes it, and compares its parameters with those of a run that was not stopped."""
    if not (runs.folder / "eager").exists():
        runs.train("eager")
    stopped = runs.train("stopped", stop_at=runs.updates // 4)
    resumed = runs.train("stopped")
    expected, actual = runs.parameters("eager"), runs.parameters("stopped")
    off = max((actual[name].double() - tensor.double()).abs().max().item() for name, tensor in expected.items())
    return {
        "stopped_at": stopped["steps"], "ended_at": resumed["steps"], "largest_difference": off,
        "is_equal": all(torch.equal(actual[name], tensor) for name, tensor in expected.items()),
    }  # fmt: skip


def compare_fsdp(setting: Setting) -> dict[str, Any]:
    """Returns the speed of updates under FSDP2 of one rank beside plain ones, in turn.

    Raises:
        ValueError: The losses differ by more than rounding.
    """
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if setting.device.type == "cuda" else "gloo"
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            return _compare_fsdp(setting)
        finally:
            dist.destroy_process_group()


def _compare_fsdp(setting: Setting) -> dict[str, Any]:
    batches = [PairBatch(b.src, b.tgt, b.labels, b.scored) for b in setting.batches(setting.n_batches)]
    losses: dict[str, list[float]] = {}
    turns = {name: iter(batches) for name in ("fsdp", "plain")}
    states = {name: _state(setting, name == "fsdp") for name in turns}

    def update(name: str) -> None:
        result = train_step(states[name], [next(turns[name])], 1e-4, 1.0)
        assert result is not None
        losses.setdefault(name, []).append(result.loss)

    runs = {name: partial(update, name) for name in turns}
    seconds = in_turn(runs, setting.device, setting.updates, len(batches) - setting.updates)
    off = max(abs(a - b) / b for a, b in zip(losses["fsdp"], losses["plain"], strict=True))
    if off > FSDP_TOLERANCE:
        raise ValueError(f"losses differ by {off:.1e}: {losses}")
    tokens = batches[0].scored_tokens
    return {
        "target_tokens_per_second": tokens / statistics.median(seconds["fsdp"]), "losses": losses,
        "over_plain": ratios(seconds, "fsdp", "plain"), "largest_relative_difference": off,
        "peak_mib_of_both": peak_mib(setting.device),
    }  # fmt: skip


def _state(setting: Setting, is_sharded: bool) -> TrainingState:
    """Returns the training state of our engine without dropout, sharded over one rank or not."""
    release_memory()
    plain = cast(Ours, setting.engine("ours", "bfloat16", dropout=0.0)).state
    if not is_sharded:
        return plain
    context = DistributedContext(0, 1, setting.device, "fsdp")
    distributed = distribute_model(plain.objective, cast(torch.nn.Module, plain.objective.model), context)
    optimizer = make_optimizer(distributed.objective)
    return TrainingState(distributed.objective, optimizer, 0, 1, plain.backend, context=context)


RUN = "{target_tokens_per_second:,.0f} target tokens/s, {steps} updates in {seconds:.0f} s, loss {loss:.3f}"
RESUMED = "stopped after step {stopped_at}, resumed to {ended_at}; equal: {is_equal}, off by {largest_difference:.1e}"
FSDP = "{target_tokens_per_second:,.0f} target tokens/s, {over_plain:.2f} x plain; losses agree"


def main() -> None:
    """Measures what is not there yet."""
    arguments = read_arguments(__doc__)
    ledger = Ledger("gpu-3", arguments)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), arguments.in_small, arguments.device.type)
        ledger.measure("transformer train, eager", 75, partial(runs.train, "eager"), RUN)
        ledger.measure("transformer train, stopped and resumed", 130, partial(resume, runs), RESUMED)
        if not arguments.in_small:
            ledger.measure("transformer train, compiled", 120, partial(runs.train, "compiled", compile=True), RUN)
            largest = partial(runs.train, "largest batch", batch_tokens="auto", max_steps=60)
            ledger.measure("transformer train, batch_tokens=auto", 120, largest, RUN)
    for name in ("base",) if arguments.in_small else ("base", "big"):
        run = partial(compare_fsdp, Setting(name, arguments))
        ledger.measure(f"{name}, FSDP2 of one rank", 30, run, FSDP)
    ledger.finish()


if __name__ == "__main__":
    main()
