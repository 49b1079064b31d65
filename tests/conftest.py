"""What the tests share: real data where it is at hand, a tiny corpus, a tiny trained run."""

import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """One thread: tests are small, and equality bit for bit is promised for one thread. Slow is no failure.

    Without a GPU, its kernels are interpreted; Triton reads that as they are loaded. What fails fails again: examples
    are the same in each run. Pipes are no terminals, whatever the caller's environment says.
    """
    torch.set_num_threads(1)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        os.environ.pop(name, None)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    settings.register_profile(
        "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
    )
    settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real corpora; TRANSFORMER_DATA points elsewhere."""
    folder = Path(os.environ.get("TRANSFORMER_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set TRANSFORMER_DATA")
    return folder


def write_lines(path: Path, lines: list[str]) -> Path:
    """A text file of the given lines."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def digit_pairs(n: int, seed: int = 3) -> list[tuple[str, str]]:
    """Words for digits and the digits themselves, reversed: a language a tiny model learns."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    draw = random.Random(seed)
    numbers = [[draw.randrange(10) for _ in range(draw.randint(1, 6))] for _ in range(n)]
    return [(" ".join(words[d] for d in number), " ".join(str(d) for d in reversed(number))) for number in numbers]


@pytest.fixture(scope="session")
def digit_corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two text files of 600 pairs."""
    folder = tmp_path_factory.mktemp("digits")
    pairs = digit_pairs(600)
    return (
        write_lines(folder / "digits.src", [source for source, _ in pairs]),
        write_lines(folder / "digits.tgt", [target for _, target in pairs]),
    )


TINY_RECIPE = {
    "tokenizer": {"vocab_size": 300},
    "model": {"d_model": 16, "N": 2, "h": 2, "d_ff": 24, "src_seq_len": 64, "tgt_seq_len": 96, "dropout": 0.1},
    "training": {
        "max_steps": 12, "batch_tokens": 256, "warmup_steps": 4, "validate_every": 6, "save_every": 6,
        "log_every": 3, "threads": 1,
    },
}  # fmt: skip


def tiny_recipe(corpus: tuple[Path, Path], **training: object) -> dict[str, dict[str, object]]:
    """The recipe of a run of seconds on the digit corpus."""
    data = {"source": str(corpus[0]), "target": str(corpus[1]), "validation_pairs": 20}
    return {**TINY_RECIPE, "data": data, "training": {**TINY_RECIPE["training"], **training}}


@pytest.fixture(scope="session")
def tiny_run(digit_corpus: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of the tiny recipe, long enough for a model that says a few digits and stops."""
    from transformer.recipe import parse_recipe
    from transformer.run import train

    folder = tmp_path_factory.mktemp("run") / "tiny"
    learning = {"max_steps": 200, "warmup_steps": 200, "batch_tokens": 1024, "validate_every": 100, "save_every": 100}
    train(parse_recipe(tiny_recipe(digit_corpus, **learning)), folder, quiet=True)
    return folder
