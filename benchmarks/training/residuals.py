"""What residual connections do for gradients and for training.

Two measurements of encoder stacks of this project: with pre-norm, with post-norm, with pre-norm but without the
residual sums (the output of each sub-layer replaces its input), and with neither sums nor norms in the layers:

1. Untrained stacks: at the input and at the output of each layer, the norm of the gradient of the loss, the norm of
   what differs in it from position to position (the gradient minus its mean over the positions of a sentence), and the
   share of the activations that differs from position to position.
2. Training: the loss of a stack that learns to write random tokens in reverse. Post-norm is trained with other lengths
   of the warm-up and with another initialization, too.

Usage: python benchmarks/training/residuals.py --out FILE
"""

import argparse
import json
import platform
import statistics
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from report import command_line, hardware
from torch import Tensor, nn

from transformer.blocks import (
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    MultiHeadAttention,
    PositionalEncoding,
    ResidualConnection,
    initialize_embeddings,
    initialize_fairseq,
    initialize_xavier_uniform,
)

D_MODEL, HEADS, D_FF, VOCABULARY = 64, 4, 256, 50
KINDS = ("pre-norm", "post-norm", "no residual connections", "no residual connections, no norms")
WARMUP = 50
VARIANTS = {
    "post-norm, no warm-up": ("post-norm", 1, initialize_xavier_uniform),
    "post-norm, warm-up of 400 steps": ("post-norm", 400, initialize_xavier_uniform),
    "post-norm, fairseq's initialization": ("post-norm", WARMUP, initialize_fairseq),
}
"""Kind, steps of warm-up and initialization."""


class NoResidual(ResidualConnection):
    """Replaces the input by the sub-layer's output, instead of adding to it."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        """Returns the output of the sub-layer for the normalized input."""
        return self.dropout(sublayer(self.norm(x)))


class Tagger(nn.Module):
    """An encoder that predicts a token at every position."""

    def __init__(
        self, depth: int, kind: str, initialize: Callable[[nn.Module], None] = initialize_xavier_uniform
    ) -> None:
        super().__init__()
        order = "post" if kind == "post-norm" else "pre"
        layers = nn.ModuleList(
            EncoderLayer(
                D_MODEL, MultiHeadAttention(D_MODEL, HEADS), FeedForwardBlock(D_MODEL, D_FF, 0.0), 0.0, order=order
            )
            for _ in range(depth)
        )
        if kind in KINDS[2:]:
            norm = nn.Identity if kind == KINDS[3] else LayerNormalization
            for layer in layers:
                layer.residual_connections = nn.ModuleList(NoResidual(D_MODEL, 0.0, norm=norm) for _ in range(2))
        self.embed = InputEmbedding(D_MODEL, VOCABULARY)
        self.positions = PositionalEncoding(D_MODEL)
        self.encoder = Encoder(layers, nn.Identity() if order == "post" else None)
        self.output = nn.Linear(D_MODEL, VOCABULARY)
        initialize(self)
        initialize_embeddings(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the logits at every position."""
        return self.output(self.encoder(self.positions(self.embed(tokens))))


def signals(depth: int, kind: str, seed: int) -> dict[str, list[float]]:
    """Returns the quantities of the first measurement at the input of the stack and at the output of each layer."""
    torch.manual_seed(seed)
    model = Tagger(depth, kind)
    outputs: list[Tensor] = []
    for module in (model.positions, *model.encoder.layers):
        module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    tokens, labels = torch.randint(VOCABULARY, (2, 16, 20))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    gradients = torch.autograd.grad(loss, outputs)
    return {
        "gradient": [gradient.norm().item() for gradient in gradients],
        "gradient that differs between positions": [differences(gradient).norm().item() for gradient in gradients],
        "share that differs between positions": [(differences(x).norm() / x.norm()).item() for x in outputs],
    }


def differences(x: Tensor) -> Tensor:
    """Subtracts the mean over the positions of each sentence."""
    return x - x.mean(dim=1, keepdim=True)


def train(
    depth: int,
    kind: str,
    seed: int,
    steps: int,
    every: int,
    warmup: int = WARMUP,
    initialize: Callable[[nn.Module], None] = initialize_xavier_uniform,
) -> list[float]:
    """Returns the loss of every so many steps of learning to write the input in reverse."""
    torch.manual_seed(seed)
    model = Tagger(depth, kind, initialize)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses, recent = [], []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / warmup)
        tokens = torch.randint(VOCABULARY, (32, 10))
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if step % every == 0:
            losses.append(statistics.fmean(recent))
            recent.clear()
    return losses


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trained-seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--trained-depth", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    untrained: dict[str, dict[str, dict[str, list[float]]]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for depth in arguments.depths:
            runs = [signals(depth, kind, seed) for seed in range(arguments.seeds)]
            untrained[kind][str(depth)] = {
                name: [statistics.geometric_mean(layer) for layer in zip(*(run[name] for run in runs), strict=True)]
                for name in runs[0]
            }
            for name, values in untrained[kind][str(depth)].items():
                print(kind, depth, name, [f"{value:.1e}" for value in values], flush=True)
    training: dict[str, list[list[float]]] = {}
    for name, (kind, warmup, initialize) in {
        **{kind: (kind, WARMUP, initialize_xavier_uniform) for kind in KINDS},
        **VARIANTS,
    }.items():
        training[name] = [
            train(arguments.trained_depth, kind, seed, arguments.steps, arguments.every, warmup, initialize)
            for seed in range(arguments.trained_seeds)
        ]
        print(name, [f"{losses[-1]:.3f}" for losses in training[name]], flush=True)
    facts = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 1},
        "versions": {
            "transformer": version("transformer"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "model": {"d_model": D_MODEL, "h": HEADS, "d_ff": D_FF, "vocabulary": VOCABULARY},
        "untrained": {
            "meaning": "at the input and at the output of each layer, geometric mean over seeds",
            "seeds": arguments.seeds,
            "values": untrained,
        },
        "training": {
            "meaning": "mean loss of every so many steps, one list for each seed; guessing has ln 50 = 3.91",
            "layers": arguments.trained_depth,
            "every": arguments.every,
            "losses": training,
        },
    }
    arguments.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
