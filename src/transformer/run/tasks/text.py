"""Tasks on running text: language modelling, masked words and span corruption."""

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
from transformer.data.windows import WindowDataset, count_fallback, open_tokens, running_text, write_tokens
from transformer.errors import ConfigError, DataError
from transformer.run.recipe import Recipe, TaskDefaults
from transformer.run.task import Task, TaskData, set_vocab_sizes
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
"""Size of the text in bytes above which the default vocabulary is larger."""
FAMILIES: Final = {"language-model": "gpt", "masked-words": "bert", "spans": "t5"}
KINDS: Final = {"language-model": "language model", "masked-words": "encoder", "spans": "encoder-decoder"}


class TextTask(Task):
    """Trains on windows of a running text."""

    def __init__(self, data: TextConfig, seed: int, folder: Path, progress: Progress) -> None:
        del seed  # the end of the text is held out
        self._data, self._progress = data, progress
        self._folder = PreparedDataCache(Path(data.prepared) if data.prepared else folder)
        self._paths = [Path(path) for path in as_list(data.text)]
        self.family_kinds = (KINDS[data.task],)
        self._held_out = [Path(path) for path in as_list(data.validation_text)]
        self._snapshot = FileSnapshot([*self._paths, *self._held_out])
        progress("checking the files", 0, None)
        self.checksums = {"data.text": combined_checksum(data.text)}
        if data.validation_text:
            self.checksums["data.validation_text"] = combined_checksum(data.validation_text)
        self.sentinels: tuple[int, ...] = ()
        self._spans = SpanCorruption(data.corruption_rate, data.span_length)

    def size(self) -> int:
        """Returns the bytes of the text."""
        return sum(path.stat().st_size for path in self._paths)

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.0, "best_metric": "loss", "learning_rate": 1e-3, "weight_decay": 0.1,
            "adam_betas": (0.9, 0.99), "batch_tokens": 8192,
        }  # fmt: skip
        model: dict[str, Any] = {"preset": "tiny"}
        if recipe.model is None:
            model["family"] = FAMILIES[self._data.task]
        if self._data.task == "masked-words":
            model |= {"masked": True, "pooler": False}
        bpe_size = 16_000 if self.size() > LONG_TEXT else 4_000
        vocab_size = bpe_size if recipe.tokenizer.kind == "bpe" else None
        if recipe.model is not None:
            model["family"] = recipe.model.model_dump()["family"]
        return TaskDefaults(vocab_size=vocab_size, model=model, training=training, epochs=10)

    def prepare(self, recipe: Recipe, base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`."""
        assert recipe.model is not None
        tokenizer = base_bundle.tokenizers.source if base_bundle else self._train_tokenizer(recipe)
        tokenizers = TokenizerPair(tokenizer, tokenizer)
        seq_len = self._seq_len(recipe)
        window = self._data.window or seq_len
        if window > seq_len:
            raise ConfigError(f"data.window={window} exceeds the model's {seq_len} positions; shorten it")
        extra = self._choose_sentinels(tokenizer, window, recipe.model.model_dump())
        folder = self._folder.get_or_create(
            "windows", self._facts(tokenizer), lambda path: self._write(path, tokenizer)
        )
        train, validation = (open_tokens(folder / name) for name in (TRAIN, VALIDATION))
        inner = window - (sum(map(len, tokenizer.boundary_tokens)) if self._data.task == "masked-words" else 0)
        stride = min(self._data.stride or inner, inner)
        datasets = self._windows(train, window, stride, tokenizer), self._windows(validation, window, inner, tokenizer)
        counts = json.loads((folder / COUNTS).read_text(encoding="utf-8"))
        facts = {**counts, "window": window, "stride": stride, "windows": len(datasets[0].lengths)}
        rows = [
            ("text", f"{counts['train_lines']:,} lines to train on, {len(train):,} tokens"),
            ("held out", f"{counts['validation_lines']:,} lines, {len(validation):,} tokens"),
            ("windows", f"{len(datasets[0].lengths):,} of {window} tokens, one every {stride}"),
            ("vocabulary", str(tokenizers)),
        ]
        if counts["unknown"]:
            rows.append(("unknown", f"{counts['unknown']:,} tokens to train on"))
        config = set_vocab_sizes(recipe.model, tokenizers, extra, base_bundle)
        if self._data.task == "masked-words":
            heads = {"masked": True, "pooler": False, "next_sentence": False, "labels": ()}
            is_pooled = config.model_dump()["embedding"] == "pooled"
            heads |= {"embedding": "mean"} if is_pooled else {}
            config = type(config).model_validate({**config.model_dump(), **heads})
        shares = {"text": counts.get("fallback", 0) / len(train)}  # earlier versions did not count them
        return TaskData(config, tokenizers, *datasets, rows, facts, self._folder.notes, fallback_shares=shares)

    def objective(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> nn.Module:
        """Implements `Task.objective`."""
        assert task_data.text is not None
        tokenizer = task_data.text.source
        checkpointing = training.activation_checkpointing
        if self._data.task == "language-model":
            return LanguageModelObjective(model, training.label_smoothing, activation_checkpointing=checkpointing)
        if self._data.task == "masked-words":
            prefix, suffix = tokenizer.boundary_tokens
            if tokenizer.special_tokens.mask is None:
                raise ConfigError("the tokenizer has no mask token, which masked words need; start from another model")
            text_ids = tokenizer.first_text_id, tokenizer.vocab_size
            n_boundary_tokens = len(prefix), len(suffix)
            return MaskedLanguageModelObjective(
                model,
                tokenizer.special_tokens.mask,
                text_ids,
                n_boundary_tokens,
                activation_checkpointing=checkpointing,
            )
        assert tokenizer.special_tokens.bos is not None
        assert tokenizer.special_tokens.eos is not None
        return SpanCorruptionObjective(
            model, self.sentinels, tokenizer.special_tokens.bos, tokenizer.special_tokens.eos, training.label_smoothing,
            self._spans, activation_checkpointing=checkpointing,
        )  # fmt: skip

    def _seq_len(self, recipe: Recipe) -> int:
        """Returns the maximum number of tokens of a window, special tokens around it included."""
        assert recipe.model is not None
        sizes = recipe.model.model_dump()
        return int(sizes.get("seq_len") or min(sizes["src_seq_len"], sizes["tgt_seq_len"]))

    def _windows(self, tokens: NDArray[np.int32], window: int, stride: int, tokenizer: Tokenizer) -> WindowDataset:
        """Divides token ids into windows of the kind that the task needs."""
        if self._data.task == "language-model":
            return WindowDataset(tokens, window + 1, stride, window)
        if self._data.task == "spans":
            return WindowDataset(tokens, window, stride, self._spans.lengths(window)[1])
        inner = window - sum(map(len, tokenizer.boundary_tokens))
        return WindowDataset(tokens, inner, stride, n_masked(inner), tokenizer.boundary_tokens)

    def _choose_sentinels(self, tokenizer: Tokenizer, window: int, model_keys: Collection[str]) -> int:
        """Chooses the ids of sentinels; returns the number of ids beyond the vocabulary of the tokenizer.

        Raises:
            ConfigError: A published tokenizer has too few sentinels, or the model has two vocabularies.
        """
        if self._data.task != "spans":
            return 0
        if "vocab_size" not in model_keys:
            raise ConfigError(
                "data.task='spans' needs a model with one vocabulary for its sentinels; choose model.family='t5'"
            )
        n_sentinels = self._spans.sizes(window)[1]
        if not isinstance(tokenizer, HuggingFaceTokenizer):
            self.sentinels = tuple(range(tokenizer.vocab_size, tokenizer.vocab_size + n_sentinels))
            return n_sentinels
        self.sentinels = tokenizer.sentinels
        if len(self.sentinels) < n_sentinels:
            raise ConfigError(
                f"data.window={window} has {n_sentinels} spans, but the tokenizer has {len(self.sentinels)} sentinels; "
                "use a shorter window"
            )
        return 0

    def _train_tokenizer(self, recipe: Recipe) -> Tokenizer:
        """Trains a tokenizer on the training text, or loads the cached one."""

        def write(folder: Path) -> None:
            self._progress("training the tokenizer", 0, None)
            tokenizer = train_tokenizer(self._lines()[0], recipe.tokenizer)
            (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
            self._snapshot.check_unchanged()

        facts = {"tokenizer": recipe.tokenizer.model_dump(mode="json"), **self._split_facts()}
        path = self._folder.get_or_create("tokenizer", facts, write) / "tokenizer.json"
        return TokenizerPair.from_files({path.name: path.read_text(encoding="utf-8")}).source

    def _split_facts(self) -> dict[str, Any]:
        """Returns the facts that determine the split into training and held-out text."""
        return {"sums": self.checksums, "share": self._data.validation_share, "invalid_utf8": self._data.invalid_utf8}

    def _facts(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {**self._split_facts(), "encoded_by": tokenizer.fingerprint()}

    def _lines(self) -> tuple[Iterator[str], Iterator[str]]:
        """Returns iterators over the training and the held-out lines.

        If the end of the text is held out, the text is read once more to find where it begins.
        """
        invalid = self._data.invalid_utf8
        if self._held_out:
            return running_text(self._paths, invalid), running_text(self._held_out, invalid)
        characters = sum(map(len, running_text(self._paths, invalid)))
        boundary = characters - int(characters * self._data.validation_share)
        return _slice_characters(running_text(self._paths, invalid), 0, boundary), _slice_characters(
            running_text(self._paths, invalid), boundary, characters
        )

    def _write(self, folder: Path, tokenizer: Tokenizer) -> None:
        counts: dict[str, int] = {}
        self._folder.check_space(self._paths)
        self._progress("reading the text", 0, None)
        for name, lines in zip((TRAIN, VALIDATION), self._lines(), strict=True):
            split, n_lines = Path(name).stem, 0

            def progress(done: int) -> None:
                nonlocal n_lines
                n_lines = done
                self._progress("encoding the text", done, None)

            write_tokens(folder / name, lines, tokenizer, progress)
            counts[f"{split}_lines"] = n_lines
        unknown = tokenizer.special_tokens.unk
        counts["unknown"] = int((open_tokens(folder / TRAIN) == unknown).sum()) if unknown is not None else 0
        counts["fallback"] = count_fallback(open_tokens(folder / TRAIN), tokenizer)
        if not counts["train_lines"] or not counts["validation_lines"]:
            raise DataError(f"{self._data.name} leaves nothing to learn from or nothing to hold out; give more text")
        (folder / COUNTS).write_text(json.dumps(counts), encoding="utf-8")
        self._snapshot.check_unchanged()


def _slice_characters(lines: Iterator[str], first: int, last: int) -> Iterator[str]:
    """Yields the characters from `first` (inclusive) to `last` (exclusive), line by line."""
    position = 0
    for line in lines:
        start, end = max(first - position, 0), min(last - position, len(line))
        if end > start:
            yield line[start:end]
        position += len(line)
        if position >= last:
            return
