"""Tasks on running text: language modelling, masked words and span corruption."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import nn

from transformer.bundle import Bundle
from transformer.data.cache import PreparedDataCache
from transformer.data.config import as_list
from transformer.data.fingerprint import FileSnapshot, combined_checksum
from transformer.data.progress import Progress
from transformer.data.task_configs import TextConfig
from transformer.data.windows import (
    WindowDataset,
    check_is_text,
    count_fallback,
    open_tokens,
    running_text,
    write_tokens,
)
from transformer.errors import ConfigError, DataError, counted
from transformer.models.kinds import EncoderConfig, EncoderDecoderConfig, LanguageModelConfig
from transformer.run.defaults import CompleteRecipe, TaskDefaults
from transformer.run.recipe import Recipe
from transformer.run.task import Task, TaskData, set_vocab_sizes
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer
from transformer.training.config import TrainingSettings
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


TextModel = TypeVar("TextModel", bound=LanguageModelConfig | EncoderConfig | EncoderDecoderConfig)


@dataclass(frozen=True)
class WindowSpec:
    """Windows of a text that a task reads, and the objective that it trains on them.

    Attributes:
        objective: Function that wraps the model in the module that computes the training loss.
        length: Number of tokens of the text that a window reads.
        step: Number of tokens from one window to the next if they do not overlap.
        n_scored: Number of scored tokens of a window.
        boundary: Special tokens before and after the text of a window.
        extra: Number of ids beyond those of the tokenizer.
    """

    objective: Callable[[nn.Module, TrainingSettings], nn.Module]
    length: int
    step: int
    n_scored: int
    boundary: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    extra: int = 0


class TextTask(Task[TextModel]):
    """Base of tasks that train on windows of a running text.

    Attributes:
        family: Default family of the model.
    """

    family: str

    def __init__(self, data: TextConfig, folder: Path, progress: Progress) -> None:
        self._data, self._progress = data, progress
        self._folder = PreparedDataCache(Path(data.prepared) if data.prepared else folder)
        self._paths = [Path(path) for path in as_list(data.text)]
        self._held_out = [Path(path) for path in as_list(data.validation_text)]
        for path in (*self._paths, *self._held_out):
            check_is_text(path)
        self._snapshot = FileSnapshot([*self._paths, *self._held_out])
        progress("checking the files", 0, None)
        self.checksums = {"data.text": combined_checksum(data.text)}
        if data.validation_text:
            self.checksums["data.validation_text"] = combined_checksum(data.validation_text)

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.0, "best_metric": "loss", "learning_rate": 1e-3, "weight_decay": 0.1,
            "adam_betas": (0.9, 0.99), "batch_tokens": 8192,
        }  # fmt: skip
        model = {"preset": "tiny", "family": recipe.model.family_name if recipe.model else self.family}
        is_long = sum(path.stat().st_size for path in self._paths) > LONG_TEXT
        vocab_size = (16_000 if is_long else 4_000) if recipe.tokenizer.kind == "bpe" else None
        return TaskDefaults(vocab_size=vocab_size, model=model, training=training, epochs=10)

    @abstractmethod
    def window_spec(self, model: TextModel, tokenizer: Tokenizer, window: int) -> WindowSpec:
        """Returns the windows that the task reads, and its objective.

        Raises:
            ConfigError: The model or the tokenizer lacks what the task needs.
        """

    def with_heads(self, config: TextModel) -> TextModel:
        """Returns the configuration with the heads that the task needs."""
        return config

    def prepare(self, recipe: CompleteRecipe[TextModel], base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`."""
        tokenizer = base_bundle.tokenizers.source if base_bundle else self._tokenizer(recipe.recipe.tokenizer)
        tokenizers = TokenizerPair(tokenizer, tokenizer)
        window = self._data.window or recipe.model.seq_len
        if window > recipe.model.seq_len:
            raise ConfigError(f"data.window={window} exceeds the model's {recipe.model.seq_len} positions; shorten it")
        spec = self.window_spec(recipe.model, tokenizer, window)
        folder = self._folder.get_or_create(
            "windows", self._facts(tokenizer), lambda path: self._write(path, tokenizer)
        )
        tokens, held_out = (open_tokens(folder / name) for name in (TRAIN, VALIDATION))
        stride = min(self._data.stride or spec.step, spec.step)
        train = WindowDataset(tokens, spec.length, stride, spec.n_scored, spec.boundary)
        counts = json.loads((folder / COUNTS).read_text(encoding="utf-8"))
        rows = [
            ("text", f"{counted(counts['train_lines'], 'line')} to train on, {counted(len(tokens), 'token')}"),
            ("held out", f"{counted(counts['validation_lines'], 'line')}, {counted(len(held_out), 'token')}"),
            ("windows", f"{len(train.lengths):,} of {window} tokens, one every {stride}"),
            ("vocabulary", str(tokenizers)),
        ]
        if counts["unknown"]:
            rows.append(("unknown", f"{counted(counts['unknown'], 'token')} to train on"))
        return TaskData(
            config=self.with_heads(set_vocab_sizes(recipe.model, tokenizers, spec.extra, base_bundle)), text=tokenizers,
            objective=spec.objective, train=train,
            validation=WindowDataset(held_out, spec.length, spec.step, spec.n_scored, spec.boundary), rows=rows,
            facts={**counts, "window": window, "stride": stride, "windows": len(train.lengths)},
            notes=self._folder.notes,
            fallback_shares={"text": counts.get("fallback", 0) / len(tokens)},  # earlier versions did not count them
        )  # fmt: skip

    def _tokenizer(self, settings: TokenizerConfig) -> Tokenizer:
        """Trains a tokenizer on the training text, or loads the cached one."""

        def write(folder: Path) -> None:
            self._progress("training the tokenizer", 0, None)
            tokenizer = train_tokenizer(self._lines()[0], settings)
            (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
            self._snapshot.check_unchanged()

        facts = {"tokenizer": settings.model_dump(mode="json"), **self._split_facts()}
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

            with (folder / name).open("wb") as file:
                write_tokens(file, lines, tokenizer, progress)
            counts[f"{split}_lines"] = n_lines
        unknown = tokenizer.special_tokens.unk
        counts["unknown"] = int((open_tokens(folder / TRAIN) == unknown).sum()) if unknown is not None else 0
        counts["fallback"] = count_fallback(open_tokens(folder / TRAIN), tokenizer)
        if not counts["train_lines"] or not counts["validation_lines"]:
            raise DataError(f"{self._data.name} leaves nothing to learn from or nothing to hold out; give more text")
        (folder / COUNTS).write_text(json.dumps(counts), encoding="utf-8")
        self._snapshot.check_unchanged()


class LanguageModelTask(TextTask[LanguageModelConfig]):
    """Predicts every token from those before it."""

    name, family, model_type = "language-model", "gpt", LanguageModelConfig

    def window_spec(self, model: LanguageModelConfig, tokenizer: Tokenizer, window: int) -> WindowSpec:
        """Implements `TextTask.window_spec`."""
        del model, tokenizer

        def objective(model: nn.Module, settings: TrainingSettings) -> nn.Module:
            checkpointing = settings.activation_checkpointing
            return LanguageModelObjective(model, settings.label_smoothing, activation_checkpointing=checkpointing)

        return WindowSpec(objective, length=window + 1, step=window, n_scored=window)


class MaskedWordsTask(TextTask[EncoderConfig]):
    """Predicts masked tokens from the others."""

    name, family, model_type = "masked-words", "bert", EncoderConfig

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`."""
        defaults = super().defaults(recipe)
        return defaults.updated(model={**defaults.model, "masked": True, "pooler": False})

    def window_spec(self, model: EncoderConfig, tokenizer: Tokenizer, window: int) -> WindowSpec:
        """Implements `TextTask.window_spec`."""
        del model
        mask, boundary = tokenizer.special_tokens.mask, tokenizer.boundary_tokens
        if mask is None:
            raise ConfigError("the tokenizer has no mask token, which masked words need; start from another model")
        text_ids, n_boundary = (tokenizer.first_text_id, tokenizer.vocab_size), (len(boundary[0]), len(boundary[1]))

        def objective(model: nn.Module, settings: TrainingSettings) -> nn.Module:
            checkpointing = settings.activation_checkpointing
            return MaskedLanguageModelObjective(
                model, mask, text_ids, n_boundary, activation_checkpointing=checkpointing
            )

        inner = window - sum(n_boundary)
        return WindowSpec(objective, length=inner, step=inner, n_scored=n_masked(inner), boundary=boundary)

    def with_heads(self, config: EncoderConfig) -> EncoderConfig:
        """Implements `TextTask.with_heads`."""
        embedding = "mean" if config.embedding == "pooled" else config.embedding
        return config.updated(masked=True, pooler=False, next_sentence=False, labels=(), embedding=embedding)


class SpansTask(TextTask[EncoderDecoderConfig]):
    """Predicts the spans that sentinels replace."""

    name, family, model_type = "spans", "t5", EncoderDecoderConfig

    def window_spec(self, model: EncoderDecoderConfig, tokenizer: Tokenizer, window: int) -> WindowSpec:
        """Implements `TextTask.window_spec`."""
        if "vocab_size" not in type(model).model_fields:
            raise ConfigError(
                "data.task='spans' needs a model with one vocabulary for its sentinels; choose model.family='t5'"
            )
        spans = SpanCorruption(self._data.corruption_rate, self._data.span_length)
        n_sentinels, first = spans.sizes(window)[1], tokenizer.vocab_size
        is_published = isinstance(tokenizer, HuggingFaceTokenizer)
        sentinels = tokenizer.sentinels if is_published else tuple(range(first, first + n_sentinels))
        if len(sentinels) < n_sentinels:
            raise ConfigError(
                f"data.window={window} has {n_sentinels} spans, but the tokenizer has {len(sentinels)} sentinels; "
                "use a shorter window"
            )
        bos, eos = tokenizer.special_tokens.bos, tokenizer.special_tokens.eos
        if bos is None or eos is None:
            raise ConfigError("the tokenizer has no BOS or EOS, which spans need; start from another model")

        def objective(model: nn.Module, settings: TrainingSettings) -> nn.Module:
            return SpanCorruptionObjective(
                model, sentinels, bos, eos, settings.label_smoothing, spans,
                activation_checkpointing=settings.activation_checkpointing,
            )  # fmt: skip

        extra = 0 if is_published else n_sentinels
        return WindowSpec(objective, length=window, step=window, n_scored=spans.lengths(window)[1], extra=extra)


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
