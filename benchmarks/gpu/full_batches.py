"""Batches that fill a GPU's memory, attention without padding, and Adam: `make gpu-2`.

Measures, in this order, and skips what the file of results has:
- the paper's base and big with batches of 512 pairs of 32 random tokens and twice as many again and again, until they
  no longer fit: speed and peak memory of ours and of transformers, each alone in memory;
- the share of padding in batches of pairs of similar lengths, as `transformer train` makes them, by batch size;
- attention of 4,096 pairs with the lengths of a corpus, forward and backward: padded, in such batches, beside
  `torch.nn.attention.varlen` on the packed tokens. Training has no packed attention (decision 0122); these two tell how
  much it could gain;
- Adam's update of base and big: torch's fused form, which training uses, beside its other forms.

Lengths are those of the first pairs of Multi30k if TRANSFORMER_DATA names a folder with it, in words and a quarter, and
otherwise drawn: a mean of 27, log-normal.

Usage: python benchmarks/gpu/full_batches.py [--out FOLDER] [--minutes 7] [--again]
"""

import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ledger import (
    Arguments,
    Ledger,
    has_package,
    in_turn,
    peak_mib,
    ratios,
    read_arguments,
    release_memory,
    seconds_of,
    spread,
)
from numpy.typing import NDArray
from torch import Tensor
from training_step import Setting

from transformer.data.token_batching import batch_by_tokens

UPDATES, DOUBLINGS = 5, 7
PAIRS, MEAN, DEVIATION, LONGEST = 4096, 27.0, 0.55, 128
BATCH_TOKENS = 16_384
CORPUS, PADDED_TOKENS = 100_000, (4096, 16_384, 65_536)
WORDS_TO_TOKENS = 1.25
"""Tokens of a word, and the end of the sentence beside them."""


def fill_memory(setting: Setting, name: str) -> dict[str, Any]:
    """Returns speed and memory of one engine with larger and larger batches."""
    points: list[dict[str, Any]] = []
    engine = setting.engine(name, "bfloat16")
    engine.model.train()
    for doubling in range(2 if setting.is_small else DOUBLINGS):
        pairs = setting.pairs << doubling
        release_memory()
        try:
            batches = setting.batches(2 + UPDATES, pairs)
            for batch in batches[:2]:
                engine.step(batch)
            taken = [seconds_of(partial(engine.step, batch), setting.device) for batch in batches[2:]]
        except torch.OutOfMemoryError:
            points.append({"pairs": pairs, "fits": False})
            break
        speed = batches[0].scored / statistics.median(taken)
        points.append({
            "pairs": pairs, "target_tokens": batches[0].scored, "target_tokens_per_second": speed,
            "peak_mib": peak_mib(setting.device), "fits": True,
        })  # fmt: skip
    fitting = [point for point in points if point["fits"]]
    fastest = max(fitting, key=lambda point: point["target_tokens_per_second"])
    return {"points": points, "speed": fastest["target_tokens_per_second"], "tokens": fastest["target_tokens"],
            "largest": fitting[-1]["target_tokens"], "peak_mib": fitting[-1]["peak_mib"]}  # fmt: skip


def corpus_lengths(n: int) -> NDArray[np.int32]:
    """Returns the lengths of the sources and targets of pairs in tokens, ends included."""
    folder = Path(os.environ.get("TRANSFORMER_DATA", "")) / "multi30k"
    if "TRANSFORMER_DATA" in os.environ and (folder / "train.en").exists():
        sides = [
            (folder / f"train.{language}").read_text(encoding="utf-8").splitlines()[:n] for language in ("en", "de")
        ]
        words = np.array([[len(line.split()) for line in side] for side in sides]).T
        return np.minimum(1 + WORDS_TO_TOKENS * words, LONGEST).astype(np.int32)
    draw = np.random.default_rng(1)
    source = draw.lognormal(np.log(MEAN) - DEVIATION**2 / 2, DEVIATION, n)
    both = np.stack([source, source * draw.normal(1, 0.15, n)], axis=1)
    return np.clip(both, 2, LONGEST).astype(np.int32)


def padding_of_batches(setting: Setting) -> dict[str, float]:
    """Returns the share of the positions that are padding, of both sides together, by tokens of a batch."""
    lengths = corpus_lengths(1000 if setting.is_small else CORPUS)
    shares: dict[str, float] = {}
    for tokens in PADDED_TOKENS:
        batches = batch_by_tokens(lengths, tokens, seed=1, epoch=0)
        padded = sum(len(ids) * int(lengths[ids].max(axis=0).sum()) for ids in batches)
        shares[f"padding_at_{tokens}"] = 1 - int(lengths.sum()) / padded
    return {"pairs": len(lengths), **shares}


def attend_without_padding(setting: Setting) -> dict[str, Any]:
    """Returns the times of attention over the targets of a corpus, padded and packed.

    Raises:
        ValueError: Both differ by more than rounding.
    """
    h, width = setting.shape.h, setting.shape.d_model // setting.shape.h
    lengths = corpus_lengths(16 if setting.is_small else PAIRS)
    batch_tokens = 256 if setting.is_small else BATCH_TOKENS
    batches = [lengths[ids, 1] for ids in batch_by_tokens(lengths, batch_tokens, seed=1, epoch=0)]
    dtype = torch.bfloat16 if setting.device.type == "cuda" else torch.float32
    made = [AttentionCase(sizes, h, width, dtype, setting.device) for sizes in batches]
    seconds = in_turn(
        {"padded": lambda: [case.padded() for case in made], "packed": lambda: [case.packed() for case in made]},
        setting.device, 2 if setting.is_small else 10,
    )  # fmt: skip
    off = max(case.difference() for case in made)
    if off > (2e-2 if dtype == torch.bfloat16 else 1e-5):
        raise ValueError(f"packed attention differs from padded attention by {off:.1e}")
    padding = 1 - sum(int(sizes.sum()) for sizes in batches) / sum(len(sizes) * int(sizes.max()) for sizes in batches)
    return {"packed_over_padded": ratios(seconds, "packed", "padded"), "padding": padding, "largest_difference": off,
            "padded_seconds": spread(seconds["padded"]), "packed_seconds": spread(seconds["packed"])}  # fmt: skip


class AttentionCase:
    """Causal self-attention of a batch, whose tokens are packed, or padded to the longest row.

    Args:
        sizes: Length of each row.
        h: Number of heads.
        width: Width of a head.
        dtype: Type of queries, keys and values.
        device: Their device.
    """

    def __init__(self, sizes: NDArray[np.int32], h: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        draw = torch.Generator().manual_seed(1)
        self.sizes, self.longest = sizes.tolist(), int(sizes.max())
        packed = torch.randn(int(sizes.sum()), 3, h, width, generator=draw).to(device, dtype)
        self.is_token = torch.arange(self.longest) < torch.from_numpy(sizes)[:, None]
        self.is_token = self.is_token.to(device)
        padded = packed.new_zeros(len(sizes), self.longest, 3, h, width)
        padded[self.is_token] = packed
        self.inputs = [x.contiguous().requires_grad_() for x in packed.unbind(1)]
        self.padded_inputs = [x.transpose(1, 2).contiguous().requires_grad_() for x in padded.unbind(2)]
        causal = torch.ones(self.longest, self.longest, dtype=torch.bool, device=device).tril()
        self.mask = causal & self.is_token[:, None, None, :]
        self.starts = F.pad(torch.from_numpy(sizes).cumsum(0), (1, 0)).to(device, torch.int32)

    def padded(self) -> Tensor:
        """Computes attention with a mask, as training does, and its gradient."""
        out = F.scaled_dot_product_attention(*self.padded_inputs, attn_mask=self.mask)
        out.backward(torch.ones_like(out))
        return out

    def packed(self) -> Tensor:
        """Computes attention without padding, and its gradient."""
        out = self._varlen() if self.mask.is_cuda else self._one_by_one()
        out.backward(torch.ones_like(out))
        return out

    def _varlen(self) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        starts, longest = self.starts, self.longest
        try:
            out = varlen_attn(*self.inputs, starts, starts, longest, longest, window_size=(-1, 0))
        except TypeError:  # before torch 2.11
            out = varlen_attn(*self.inputs, starts, starts, longest, longest, is_causal=True)  # pyright: ignore[reportCallIssue]
        return out if isinstance(out, Tensor) else out[0]

    def _one_by_one(self) -> Tensor:
        """Attends row by row: CPUs have no attention for packed rows."""
        rows = zip(*(x.split(self.sizes) for x in self.inputs), strict=True)
        heads = [[x.transpose(0, 1) for x in row] for row in rows]
        return torch.cat([F.scaled_dot_product_attention(*row, is_causal=True).transpose(0, 1) for row in heads])

    def difference(self) -> float:
        """Returns the largest difference of both results."""
        return (self.padded().transpose(1, 2)[self.is_token] - self.packed()).abs().max().item()


def update_by_adam(setting: Setting) -> dict[str, Any]:
    """Returns the times of Adam's update in each of its forms, with the same gradients."""
    forms: dict[str, dict[str, bool]] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
    }
    weights = setting.weights()
    runs: dict[str, Callable[[], object]] = {}
    for name, options in forms.items():
        parameters = [torch.nn.Parameter(weight.clone().to(setting.device)) for weight in weights.values()]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        runs[name] = torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, **options).step
    seconds = in_turn(runs, setting.device, 3 if setting.is_small else 20, warm_up=2)
    n = sum(weight.numel() for weight in weights.values())
    milliseconds = {f"{name}_milliseconds": 1e3 * statistics.median(taken) for name, taken in seconds.items()}
    bytes_per_second = 28 * n / statistics.median(seconds["fused"])  # reads 4 tensors, writes 3
    return milliseconds | {"parameters": n, "fused_bytes_per_second": bytes_per_second}


FULL = "{speed:,.0f} target tokens/s at best, with {tokens:,} a batch; {largest:,} fit, in {peak_mib:,.0f} MiB"
PADDING = ", ".join(f"{{padding_at_{tokens}:.1%}} of batches of {tokens:,}" for tokens in PADDED_TOKENS)
PACKED = "packed is {packed_over_padded:.2f} x as fast as padded; {padding:.1%} of the positions are padding"
ADAM = "fused {fused_milliseconds:.2f} ms, foreach {foreach_milliseconds:.2f}, loop {loop_milliseconds:.2f}"


def main() -> None:
    """Measures what is not there yet."""
    arguments: Arguments = read_arguments(__doc__)
    ledger = Ledger("gpu-2", arguments)
    settings = [Setting(name, arguments) for name in (("base",) if arguments.in_small else ("base", "big"))]
    for setting in settings:
        for engine in ("ours", "transformers") if has_package("transformers") else ("ours",):
            run = partial(fill_memory, setting, engine)
            seconds = 60 if setting.name == "base" else 150
            ledger.measure(f"{setting.name}, batches that fill the memory, {engine}", seconds, run, FULL)
    ledger.measure("padding", 15, partial(padding_of_batches, settings[0]), PADDING)
    for setting in settings:
        run = partial(attend_without_padding, setting)
        ledger.measure(f"{setting.name}, attention without padding", 15, run, PACKED)
        ledger.measure(f"{setting.name}, Adam", 15, partial(update_by_adam, setting), ADAM)
    ledger.finish()


if __name__ == "__main__":
    main()
