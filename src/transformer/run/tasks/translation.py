"""Translation: sentence pairs, teacher forcing, BLEU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.bundle import Bundle
from transformer.data.config import DataConfig
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.data.progress import Progress
from transformer.decoding import Search
from transformer.errors import ConfigError
from transformer.evaluation.scores import corpus_scores
from transformer.pipelines.translation.translator import BATCH_TOKENS, EXTRA_TOKENS, Translator
from transformer.reporting.record import translation_lines
from transformer.run.recipe import Defaults, Recipe, fill_in
from transformer.run.task import Scores, Task, TaskData, refuse_metric, sized
from transformer.runtime.allocator import trim_heap
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.validation import batches_longest_first, validation_loss
from transformer.transformer import Transformer

DROPOUTS: Final = ("dropout", "attention_dropout", "activation_dropout")


class TranslationTask(Task):
    """From one language to another, or from text to text."""

    kinds = ("encoder-decoder",)
    metrics = ("bleu", "chrf", "loss")

    def __init__(self, data: DataConfig, seed: int, folder: Path, progress: Progress) -> None:
        self.preparation = CorpusBuilder(data, seed, folder, progress)
        self.sums = self.preparation.sums
        self.corpus: Corpus | None = None

    def size(self) -> int:
        """Pairs of the training text."""
        return self.preparation.scan().pairs

    def defaults(self, recipe: Recipe) -> Defaults:
        """Not asked for: see `complete`."""
        raise NotImplementedError

    def complete(self, recipe: Recipe, steps_per_epoch: int | None = None, earlier: Recipe | None = None) -> Recipe:
        """See `fill_in`."""
        refuse_metric(recipe.training.best_metric, self.metrics)
        filled = fill_in(recipe, self.size(), steps_per_epoch, earlier)
        assert filled.model is not None
        if filled.training.r_drop and not any(filled.model.model_dump().get(name) for name in DROPOUTS):
            raise ConfigError(
                "training.r_drop compares two passes that differ by dropout alone, and nothing is dropped; "
                "set model.dropout, or leave training.r_drop out"
            )
        return filled

    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """As of `Task`."""
        tokenizers = known.tokenizers if known else self.preparation.train_tokenizers(recipe.tokenizer)
        assert recipe.model is not None
        if "vocab_size" in recipe.model.model_dump() and not tokenizers.is_joint:
            raise ConfigError("tokenizer.joint=false does not go with a model of one vocabulary; leave it out")
        config = sized(recipe.model, tokenizers, known=known)
        lengths = config.model_dump()["src_seq_len"], config.model_dump()["tgt_seq_len"]
        corpus = self.corpus = self.preparation.prepare(tokenizers, lengths)
        report = corpus.report
        longest = {"max_source_tokens": report.longest_source}
        return TaskData(
            config, tokenizers, corpus.train, corpus.validation, report.lines(), report.to_dict(), corpus.notes, longest
        )

    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> TranslationObjective:
        """As of `Task`."""
        assert isinstance(model, Transformer)
        assert material.text is not None
        pads = [side.special_tokens.pad or 0 for side in (material.text.source, material.text.target)]
        return TranslationObjective(
            model, training.label_smoothing, r_drop=training.r_drop, pad_ids=(pads[0], pads[1]),
            activation_checkpointing=training.activation_checkpointing,
        )  # fmt: skip

    def scores(self, model: nn.Module, training: TrainingConfig, material: TaskData, backend: Backend) -> Scores:
        """Loss, perplexity, BLEU and chrF on the validation pairs."""
        assert isinstance(model, Transformer)
        assert self.corpus is not None
        plain = training.model_copy(update={"activation_checkpointing": False})
        objective = self.objective(model, plain, material)
        values = validation_loss(objective, self.corpus.validation, training.budget_at_once, backend)
        found = self._translations(model, training, material, self._batches(training))
        references = [reference for _, reference in self.corpus.validation_text]
        outputs = [found[line] for line in range(len(references))]
        translated = corpus_scores(outputs, references)
        signatures = {score.name.lower(): score.signature for score in translated}
        return Scores(values | {score.name.lower(): score.value for score in translated}, signatures, outputs)

    def warm_up_validation(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> None:
        """Translates those validation sources that take most room, to the longest that translations may become.

        They are many and short rather than few and long, since each may become `EXTRA_TOKENS` longer than its source.
        """
        assert self.corpus is not None
        lengths = self.corpus.validation.lengths[:, 0]
        most: int = material.config.model_dump()["tgt_seq_len"]

        def positions(lines: NDArray[np.int64]) -> int:
            longest = int(lengths[lines].max())
            return len(lines) * (longest + min(longest + EXTRA_TOKENS, most))

        largest = max(self._batches(training), key=positions)
        limit = min(int(lengths[largest].max()) + EXTRA_TOKENS, most)
        self._translations(model, training, material, [largest], limit)

    def _batches(self, training: TrainingConfig) -> list[NDArray[np.int64]]:
        """Validation lines that are translated at a time."""
        assert self.corpus is not None
        at_once = min(BATCH_TOKENS, training.budget_at_once)
        return batches_longest_first(self.corpus.validation.lengths[:, 0], at_once)

    def _translations(
        self,
        model: nn.Module,
        training: TrainingConfig,
        material: TaskData,
        batches: Sequence[NDArray[np.int64]],
        limit: int | None = None,
    ) -> dict[int, str]:
        """What the model makes of each line of the batches; what one batch leaves is given back before the next.

        Args:
            model: of the run.
            training: its settings.
            material: its tokenizers.
            batches: lines that are translated together.
            limit: positions that every translation fills; as many as it needs if not given.
        """
        assert isinstance(model, Transformer)
        assert self.corpus is not None
        assert material.text is not None
        longest, sources = self.corpus.report.longest_source, [source for source, _ in self.corpus.validation_text]
        search = Search(guard=False, min_tokens=0 if limit is None else limit - 1)
        translator = Translator(model, material.text, max_source_tokens=longest, search=search)
        translator.max_target_tokens = translator.max_target_tokens if limit is None else limit
        translator.batch_tokens = min(translator.batch_tokens, training.budget_at_once)
        found: dict[int, str] = {}
        for lines in batches:
            trim_heap()
            # `translate` would warn of every line that does not end yet.
            translations = translator.translations([sources[line] for line in lines])
            translator.close()  # a GPU keeps the places of one batch alone, as they were rehearsed
            found |= {int(line): each.text for line, each in zip(lines, translations, strict=True)}
        return found

    def kept(self, material: TaskData, outputs: list[str]) -> str:
        """Validation pairs with their translations."""
        del material
        assert self.corpus is not None
        return translation_lines(self.corpus.validation_text, outputs)
