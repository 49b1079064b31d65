"""Small corpora and recipes shared by tests of several folders."""

import gzip
import os
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from torch import nn

if TYPE_CHECKING:
    from transformer.training.config import TrainingSettings

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus" / "everyday"
"""Real sentences, English (.en) and German (.de), a pair a line."""


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Writes a text file of the given lines and returns its path."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def digit_pairs(n: int, seed: int = 3) -> list[tuple[str, str]]:
    """Returns pairs of number words and the same digits in reverse order, which a tiny model can learn."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    generator = random.Random(seed)
    numbers = [[generator.randrange(10) for _ in range(generator.randint(1, 6))] for _ in range(n)]
    return [(" ".join(words[d] for d in number), " ".join(str(d) for d in reversed(number))) for number in numbers]


TINY_RECIPE = {
    "tokenizer": {"vocab_size": 300},
    "model": {"d_model": 16, "N": 2, "h": 2, "d_ff": 24, "src_seq_len": 64, "tgt_seq_len": 96, "dropout": 0.1},
    "training": {
        "max_steps": 12, "batch_tokens": 256, "warmup_steps": 4, "validate_every": 6, "save_every": 6,
        "log_every": 3, "threads": 1, "seed": int(os.environ.get("TRANSFORMER_TEST_SEED", "1")),
    },
}  # fmt: skip


def tiny_recipe(corpus: tuple[Path, Path], **training: object) -> dict[str, dict[str, object]]:
    """Returns the recipe of a run that takes a few seconds on the digit corpus."""
    data = {"source": str(corpus[0]), "target": str(corpus[1]), "validation_pairs": 20}
    return {**TINY_RECIPE, "data": data, "training": {**TINY_RECIPE["training"], **training}}


def training_settings(**training: object) -> "TrainingSettings":
    """Returns the settings of a short training, with the given keys of a recipe's `training` section."""
    from transformer.training.config import TrainingConfig, TrainingSettings

    length = {"max_steps": 10, "warmup_steps": 1, "decay_steps": 10, "validate_every": "epoch", "save_every": "epoch"}
    return TrainingSettings.from_config(TrainingConfig.model_validate({"accumulation": 1, **length, **training}))


def write_recipe(folder: Path, corpus: tuple[Path, Path] | int, *, dropout: float = 0.1, **training: object) -> Path:
    """Writes the recipe of a tiny run, on so many pairs of digits unless there is a corpus, and returns its path."""
    from transformer.run.recipe import parse_recipe

    if isinstance(corpus, int):
        source, target = zip(*digit_pairs(corpus), strict=True)
        corpus = write_lines(folder / "src", source), write_lines(folder / "tgt", target)
    tree = tiny_recipe(corpus, **training)
    tree["model"] = {**tree["model"], "dropout": dropout}
    (folder / "recipe.toml").write_text(parse_recipe(tree).to_toml(), encoding="utf-8")
    return folder / "recipe.toml"


def idx(path: Path, values: np.ndarray) -> Path:
    """Writes an IDX file, compressed if its name ends in .gz, and returns its path."""
    header = b"\x00\x00\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()) if path.suffix == ".gz" else header + values.tobytes())
    return path


def fast_first(values: Iterable[Any], count: int) -> list[Any]:
    """Returns the values of a test parameter, all but the first `count` marked as slow."""
    return [
        value if index < count else pytest.param(value, marks=pytest.mark.slow) for index, value in enumerate(values)
    ]


def compressed(path: Path, content: bytes) -> Path:
    """Writes a file, compressed if its name ends in .gz or .zst, and returns its path."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content, mtime=0))
    elif path.suffix == ".zst":
        path.write_bytes(pa.Codec("zstd").compress(content, asbytes=True))
    else:
        path.write_bytes(content)
    return path


def tmx(body: str, doctype: str = "") -> bytes:
    """Returns a translation memory."""
    return f'<?xml version="1.0"?>\n{doctype}<tmx version="1.4"><header/><body>{body}</body></tmx>'.encode()


def unit(*segments: tuple[str, str]) -> str:
    """Returns a translation unit of segments, each given as language and text."""
    variants = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in segments)
    return f"<tu>{variants}</tu>"


def randomize(module: nn.Module) -> Any:
    """Draws all parameters from a normal distribution and turns dropout off."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()
