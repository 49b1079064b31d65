"""Running text: language models, masked words, span corruption."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.bundle import Bundle
from transformer.data.cache import PreparedDataCache
from transformer.data.config import as_list
from transformer.data.fingerprint import FileSnapshot, combined_checksum
from transformer.data.progress import Progress
from transformer.data.task_configs import TextConfig
from transformer.data.windows import WindowDataset, open_tokens, running_text, write_tokens
from transformer.errors import ConfigError, DataError
from transformer.run.recipe import Defaults, Recipe
from transformer.run.task import Task, TaskData, sized
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer
from transformer.training.config import TrainingConfig
from transformer.training.objectives.language_modelling import (
    LanguageModelObjective,
    MaskedLanguageModelObjective,
    SpanCorruption,
    SpanCorruptionObjective,
    n_masked,
)

TRAIN, VALIDATION, COUNTS = "train.npy", "validation.npy", "counts.json"
LONG_TEXT: Final = 10_000_000
"""Characters from which on a larger vocabulary is the default."""
FAMILIES: Final = {"language-model": "gpt", "masked-words": "bert", "spans": "t5"}
KINDS: Final = {"language-model": "language model", "masked-words": "encoder", "spans": "encoder-decoder"}


class TextTask(Task):
    """Learns from windows of a running text."""

    def __init__(self, data: TextConfig, seed: int, folder: Path, progress: Progress) -> None:
        del seed  # the end of the text is held out
        self._data, self._progress = data, progress
        self._folder = PreparedDataCache(Path(data.prepared) if data.prepared else folder)
        self._paths = [Path(path) for path in as_list(data.text)]
        self.kinds = (KINDS[data.task],)
        self._held_out = [Path(path) for path in as_list(data.validation_text)]
        self._stamps = FileSnapshot([*self._paths, *self._held_out])
        self.sums = {"data.text": combined_checksum(data.text)}
        if data.validation_text:
            self.sums["data.validation_text"] = combined_checksum(data.validation_text)
        self.sentinels: tuple[int, ...] = ()
        self._spans = SpanCorruption(data.corruption_rate, data.span_length)

    def size(self) -> int:
        """Bytes of the text."""
        return sum(path.stat().st_size for path in self._paths)

    def defaults(self, recipe: Recipe) -> Defaults:
        """As of `Task`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.0, "best_metric": "loss", "learning_rate": 1e-3, "weight_decay": 0.1,
            "adam_betas": (0.9, 0.99), "batch_tokens": 8192,
        }  # fmt: skip
        model: dict[str, Any] = {"preset": "tiny"}
        if recipe.model is None:
            model["family"] = FAMILIES[self._data.task]
        if self._data.task == "masked-words":
            model |= {"masked": True, "pooler": False}
        pieces = 16_000 if self.size() > LONG_TEXT else 4_000
        vocab_size = pieces if recipe.tokenizer.kind == "bpe" else None
        if recipe.model is not None:
            model["family"] = recipe.model.model_dump()["family"]
        return Defaults(vocab_size=vocab_size, model=model, training=training, epochs=10)

    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """As of `Task`."""
        assert recipe.model is not None
        tokenizer = known.tokenizers.source if known else self._trained(recipe)
        tokenizers = TokenizerPair(tokenizer, tokenizer)
        seq_len = self._seq_len(recipe)
        window = self._data.window or seq_len
        if window > seq_len:
            raise ConfigError(f"data.window={window} exceeds the model's {seq_len} positions; shorten it")
        extra = self._choose_sentinels(tokenizer, window, recipe.model.model_dump())
        folder = self._folder.entry("windows", self._facts(tokenizer), lambda path: self._write(path, tokenizer))
        train, validation = (open_tokens(folder / name) for name in (TRAIN, VALIDATION))
        inner = window - (sum(map(len, tokenizer.boundary_tokens)) if self._data.task == "masked-words" else 0)
        stride = min(self._data.stride or inner, inner)
        sources = self._source(train, window, stride, tokenizer), self._source(validation, window, inner, tokenizer)
        counts = json.loads((folder / COUNTS).read_text(encoding="utf-8"))
        facts = {**counts, "window": window, "stride": stride, "windows": len(sources[0].lengths)}
        lines = [
            f"text: {counts['train_lines']:,} lines, {len(train):,} tokens; held out {counts['validation_lines']:,} "
            f"lines, {len(validation):,} tokens; unknown {counts['unknown']:,}",
            f"{len(sources[0].lengths):,} windows of {window} tokens, one every {stride}",
        ]
        config = sized(recipe.model, tokenizers, extra, known)
        if self._data.task == "masked-words":
            heads = {"masked": True, "pooler": False, "next_sentence": False, "labels": ()}
            is_pooled = config.model_dump()["embedding"] == "pooled"
            heads |= {"embedding": "mean"} if is_pooled else {}
            config = type(config).model_validate({**config.model_dump(), **heads})
        return TaskData(config, tokenizers, *sources, lines, facts, self._folder.notes)

    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
        """As of `Task`."""
        assert material.text is not None
        tokenizer = material.text.source
        checkpointing = training.activation_checkpointing
        if self._data.task == "language-model":
            return LanguageModelObjective(model, training.label_smoothing, activation_checkpointing=checkpointing)
        if self._data.task == "masked-words":
            before, after = tokenizer.boundary_tokens
            if tokenizer.special_tokens.mask is None:
                raise ConfigError(
                    "the tokenizer has no token for a mask, and so no masked words; begin with another model"
                )
            text_ids = tokenizer.first_text_id, tokenizer.vocab_size
            frame = len(before), len(after)
            return MaskedLanguageModelObjective(
                model, tokenizer.special_tokens.mask, text_ids, frame, activation_checkpointing=checkpointing
            )
        assert tokenizer.special_tokens.bos is not None
        assert tokenizer.special_tokens.eos is not None
        return SpanCorruptionObjective(
            model, self.sentinels, tokenizer.special_tokens.bos, tokenizer.special_tokens.eos, training.label_smoothing,
            self._spans, activation_checkpointing=checkpointing,
        )  # fmt: skip

    def _seq_len(self, recipe: Recipe) -> int:
        """Most tokens of a window that the model takes, its frame included."""
        assert recipe.model is not None
        sizes = recipe.model.model_dump()
        return int(sizes.get("seq_len") or min(sizes["src_seq_len"], sizes["tgt_seq_len"]))

    def _source(self, tokens: NDArray[np.int32], window: int, stride: int, tokenizer: Tokenizer) -> WindowDataset:
        """Windows of one of the texts, as the task reads them."""
        if self._data.task == "language-model":
            return WindowDataset(tokens, window + 1, stride, window)
        if self._data.task == "spans":
            return WindowDataset(tokens, window, stride, self._spans.lengths(window)[1])
        inner = window - sum(map(len, tokenizer.boundary_tokens))
        return WindowDataset(tokens, inner, stride, n_masked(inner), tokenizer.boundary_tokens)

    def _choose_sentinels(self, tokenizer: Tokenizer, window: int, known: Collection[str]) -> int:
        """Settles the ids of sentinels; returns how many there are beyond those of the tokenizer.

        Raises:
            ConfigError: a published tokenizer has too few, or the model two vocabularies.
        """
        if self._data.task != "spans":
            return 0
        if "vocab_size" not in known:
            raise ConfigError("data.task='spans' needs ids for sentinels in one vocabulary; choose model.family='t5'")
        needed = self._spans.sizes(window)[1]
        if not isinstance(tokenizer, HuggingFaceTokenizer):
            self.sentinels = tuple(range(tokenizer.vocab_size, tokenizer.vocab_size + needed))
            return needed
        self.sentinels = tokenizer.sentinels
        if len(self.sentinels) < needed:
            raise ConfigError(
                f"data.window={window} has {needed} spans, but the tokenizer {len(self.sentinels)} sentinels; "
                "shorten it"
            )
        return 0

    def _trained(self, recipe: Recipe) -> Tokenizer:
        """A tokenizer of the training text."""

        def write(folder: Path) -> None:
            tokenizer = train_tokenizer(self._lines()[0], recipe.tokenizer)
            (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
            self._stamps.check_unchanged()

        facts = {"tokenizer": recipe.tokenizer.model_dump(mode="json"), **self._reading()}
        path = self._folder.entry("tokenizer", facts, write) / "tokenizer.json"
        return TokenizerPair.from_files({path.name: path.read_text(encoding="utf-8")}).source

    def _reading(self) -> dict[str, Any]:
        """What decides which text is learned from and which is held out."""
        return {"sums": self.sums, "share": self._data.validation_share, "invalid_utf8": self._data.invalid_utf8}

    def _facts(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {**self._reading(), "encoded_by": tokenizer.fingerprint()}

    def _lines(self) -> tuple[Iterator[str], Iterator[str]]:
        """The lines to learn from, and those held out; where the end is held out, it is read twice."""
        invalid = self._data.invalid_utf8
        if self._held_out:
            return running_text(self._paths, invalid), running_text(self._held_out, invalid)
        characters = sum(map(len, running_text(self._paths, invalid)))
        last = characters - int(characters * self._data.validation_share)
        return _part(running_text(self._paths, invalid), 0, last), _part(
            running_text(self._paths, invalid), last, characters
        )

    def _write(self, folder: Path, tokenizer: Tokenizer) -> None:
        counts: dict[str, int] = {}
        for name, lines in zip((TRAIN, VALIDATION), self._lines(), strict=True):
            part, seen = Path(name).stem, 0

            def progress(done: int) -> None:
                nonlocal seen
                seen = done
                self._progress("encoding", done, None)

            write_tokens(folder / name, lines, tokenizer, progress)
            counts[f"{part}_lines"] = seen
        unknown = tokenizer.special_tokens.unk
        counts["unknown"] = int((open_tokens(folder / TRAIN) == unknown).sum()) if unknown is not None else 0
        if not counts["train_lines"] or not counts["validation_lines"]:
            raise DataError(f"{self._data.name} leaves nothing to learn from or nothing to hold out; give more text")
        (folder / COUNTS).write_text(json.dumps(counts), encoding="utf-8")
        self._stamps.check_unchanged()


def _part(lines: Iterator[str], first: int, last: int) -> Iterator[str]:
    """The characters from `first` to before `last`, line by line."""
    place = 0
    for line in lines:
        start, end = max(first - place, 0), min(last - place, len(line))
        if end > start:
            yield line[start:end]
        place += len(line)
        if place >= last:
            return
