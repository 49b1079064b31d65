"""Random models and short texts for the tests of `--shards`."""

from pathlib import Path
from typing import Final

import torch

from samples import write_lines
from serving_engines import write_random_model
from transformer.bundle import Bundle, save_bundle
from transformer.cli.app import make_app
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

SOURCES: Final = [("abcdefgh" * 3)[number % 7 : number % 7 + 1 + number * 5 % 13] for number in range(38)]
TARGETS: Final = [line[::-1] for line in SOURCES]
BLOCK: Final = 4
"""Number of lines that are worked on together in these tests."""


def call(*arguments: object) -> None:
    """Runs a command in this process."""
    make_app([str(arguments[0])])([str(argument) for argument in arguments], standalone_mode=False)


def write_models_and_texts(folder: Path) -> dict[str, Path]:
    """Writes random models, and a text with its translation."""
    return {
        "bert": write_random_model("bert", folder / "bert"),
        "gpt": write_random_model("gpt", folder / "gpt", seq_len=12),
        "translator": _write_translator(folder / "translator"),
        "source": write_lines(folder / "source", SOURCES),
        "target": write_lines(folder / "target", TARGETS),
    }


def _write_translator(folder: Path) -> Path:
    tokenizer = train_tokenizer(["abcdefgh \n"], TokenizerConfig(kind="characters"))
    kind, n = family("transformer"), tokenizer.vocab_size
    sizes = {"d_model": 16, "N": 1, "h": 2, "dropout": 0.0, "src_seq_len": 24, "tgt_seq_len": 24}
    config = kind.config.model_validate({**sizes, "src_vocab_size": n, "tgt_vocab_size": n})
    torch.manual_seed(1)
    model = kind.build(config).eval()
    save_bundle(folder, Bundle(config, model, TokenizerPair(tokenizer, tokenizer), {"max_source_tokens": 20}))
    return folder
