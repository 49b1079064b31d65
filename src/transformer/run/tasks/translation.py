"""Translation: sentence pairs, teacher forcing, BLEU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.bundle import Bundle
from transformer.bundle.languages import language_entries, recorded_languages
from transformer.data.config import DataConfig
from transformer.data.languages import IdentifiedLanguage, identify_languages
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.data.progress import Progress
from transformer.decoding import Search
from transformer.errors import ConfigError
from transformer.evaluation.scores import corpus_scores
from transformer.evaluation.tokenization import Tokenization, fitting_tokenization
from transformer.pipelines.translation.config import BATCH_TOKENS, default_batch_tokens
from transformer.pipelines.translation.segment import EXTRA_TOKENS
from transformer.pipelines.translation.translator import Translator
from transformer.reporting.record import translation_lines
from transformer.run.recipe import Recipe, TaskDefaults, complete_by_corpus_size
from transformer.run.task import Scores, Task, TaskData, check_metric, set_vocab_sizes
from transformer.runtime.allocator import trim_heap
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.validation import batches_longest_first, validation_loss
from transformer.transformer import Transformer

DROPOUTS: Final = ("dropout", "attention_dropout", "activation_dropout")


class TranslationTask(Task):
    """Translates between languages, or maps any text to another text."""

    family_kinds = ("encoder-decoder",)
    metrics = ("bleu", "chrf", "loss")

    def __init__(self, data: DataConfig, seed: int, folder: Path, progress: Progress) -> None:
        self.corpus_builder = CorpusBuilder(data, seed, folder, progress)
        self.checksums = self.corpus_builder.checksums
        self.corpus: Corpus | None = None
        self.tokenization: Tokenization = "13a"

    def size(self) -> int:
        """Returns the number of training pairs."""
        return self.corpus_builder.scan().pairs

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Not implemented; `complete` chooses the defaults by the size of the corpus."""
        raise NotImplementedError

    def complete(self, recipe: Recipe, steps_per_epoch: int | None = None) -> Recipe:
        """Fills in the unset keys, see `complete_by_corpus_size`."""
        check_metric(recipe.training.best_metric, self.metrics)
        completed = complete_by_corpus_size(recipe, self.size(), steps_per_epoch)
        assert completed.model is not None
        if completed.training.r_drop and not any(completed.model.model_dump().get(name) for name in DROPOUTS):
            raise ConfigError(
                "training.r_drop compares two passes that differ by dropout alone, but the dropout is 0; "
                "set model.dropout, or leave training.r_drop out"
            )
        return completed

    def prepare(self, recipe: Recipe, base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`."""
        tokenizers = base_bundle.tokenizers if base_bundle else self.corpus_builder.train_tokenizers(recipe.tokenizer)
        assert recipe.model is not None
        if "vocab_size" in recipe.model.model_dump() and not tokenizers.is_joint:
            raise ConfigError("tokenizer.joint=false does not work with a model of one vocabulary; leave it out")
        config = set_vocab_sizes(recipe.model, tokenizers, base_bundle=base_bundle)
        lengths = config.model_dump()["src_seq_len"], config.model_dump()["tgt_seq_len"]
        corpus = self.corpus = self.corpus_builder.prepare(tokenizers, lengths)
        report = corpus.report
        languages = self._identify_languages(recipe, base_bundle)
        provenance: dict[str, Any] = {"max_source_tokens": report.longest_source}
        provenance |= language_entries(*(x.tag for x in languages))
        if corpus.source_text is not None:
            provenance["source_text"] = corpus.source_text.to_dict()
        return TaskData(
            config,
            tokenizers,
            corpus.train,
            corpus.validation,
            [*report.rows(), ("vocabulary", str(tokenizers)), *self._language_rows(*languages)],
            report.to_dict(),
            corpus.notes,
            provenance,
            dict(zip(("source", "target"), report.fallback_shares(), strict=True)),
        )

    def _identify_languages(
        self, recipe: Recipe, base_bundle: Bundle | None
    ) -> tuple[IdentifiedLanguage, IdentifiedLanguage]:
        """Identifies the languages of the corpus, and the tokenization that BLEU needs for the target."""
        assert self.corpus is not None
        assert isinstance(recipe.data, DataConfig)
        pairs = self.corpus.validation_text
        pretrained = recorded_languages(base_bundle) if base_bundle else (None, None)
        source, target = identify_languages(recipe.data, pairs, pretrained)
        self.tokenization = fitting_tokenization([reference for _, reference in pairs], target.tag)
        return source, target

    def _language_rows(self, source: IdentifiedLanguage, target: IdentifiedLanguage) -> list[tuple[str, str]]:
        return [("languages", f"source {source}, target {target}"), ("BLEU", f"tokenized by {self.tokenization}")]

    def objective(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> TranslationObjective:
        """Implements `Task.objective`."""
        assert isinstance(model, Transformer)
        assert task_data.text is not None
        pads = [side.special_tokens.pad or 0 for side in (task_data.text.source, task_data.text.target)]
        return TranslationObjective(
            model, training.label_smoothing, r_drop=training.r_drop, pad_ids=(pads[0], pads[1]),
            activation_checkpointing=training.activation_checkpointing,
        )  # fmt: skip

    def scores(self, model: nn.Module, training: TrainingConfig, task_data: TaskData, backend: Backend) -> Scores:
        """Computes loss, perplexity, BLEU and chrF on the validation pairs."""
        assert isinstance(model, Transformer)
        assert self.corpus is not None
        config = training.model_copy(update={"activation_checkpointing": False})
        objective = self.objective(model, config, task_data)
        values = validation_loss(objective, self.corpus.validation, training.budget_at_once, backend)
        translations = self._translations(model, training, task_data, self._batches(training))
        references = [reference for _, reference in self.corpus.validation_text]
        outputs = [translations[line] for line in range(len(references))]
        scores = corpus_scores(outputs, references, self.tokenization)
        signatures = {score.name.lower(): score.signature for score in scores}
        return Scores(values | {score.name.lower(): score.value for score in scores}, signatures, outputs)

    def warm_up_validation(self, model: nn.Module, training: TrainingConfig, task_data: TaskData) -> None:
        """Translates the validation batch with the highest memory use, with all translations at their maximum length.

        It has many short sources rather than few long ones, since a translation may be `EXTRA_TOKENS` longer than its
        source.
        """
        assert self.corpus is not None
        lengths = self.corpus.validation.lengths[:, 0]
        max_target: int = task_data.config.model_dump()["tgt_seq_len"]

        def positions(lines: NDArray[np.int64]) -> int:
            longest = int(lengths[lines].max())
            return len(lines) * (longest + min(longest + EXTRA_TOKENS, max_target))

        largest = max(self._batches(training), key=positions)
        limit = min(int(lengths[largest].max()) + EXTRA_TOKENS, max_target)
        self._translations(model, training, task_data, [largest], limit)

    def _batches(self, training: TrainingConfig) -> list[NDArray[np.int64]]:
        """Returns the indices of validation lines, grouped into batches for translation."""
        assert self.corpus is not None
        batch_tokens = min(BATCH_TOKENS, training.budget_at_once)
        return batches_longest_first(self.corpus.validation.lengths[:, 0], batch_tokens)

    def _translations(
        self,
        model: nn.Module,
        training: TrainingConfig,
        task_data: TaskData,
        batches: Sequence[NDArray[np.int64]],
        limit: int | None = None,
    ) -> dict[int, str]:
        """Translates the lines of the batches, by index; free memory is returned to the system before each batch.

        Args:
            model: Model of the run.
            training: Training section of the recipe.
            task_data: Data of the run, for its tokenizers.
            batches: Indices of the lines that are translated together.
            limit: Exact length of every translation; if None, translations end by themselves.
        """
        assert isinstance(model, Transformer)
        assert self.corpus is not None
        assert task_data.text is not None
        longest, sources = self.corpus.report.longest_source, [source for source, _ in self.corpus.validation_text]
        search = Search(retry_degenerate=False, min_tokens=0 if limit is None else limit - 1)
        on_gpu = next(model.parameters()).device.type == "cuda"
        translator = Translator(
            model,
            task_data.text,
            max_source_tokens=longest,
            max_target_tokens=limit,
            search=search,
            batch_tokens=min(default_batch_tokens(search.beam, on_gpu=on_gpu), training.budget_at_once),
            split="none",
            copy=False,
        )
        translations: dict[int, str] = {}
        for lines in batches:
            trim_heap()
            # `translate` would warn about every translation that an untrained model does not end.
            results = translator.translations([sources[line] for line in lines])
            translator.close()  # a GPU holds the buffers of one batch only, as measured in the warm-up
            translations |= {int(line): result.text for line, result in zip(lines, results, strict=True)}
        return translations

    def translations_jsonl(self, task_data: TaskData, outputs: list[str]) -> str:
        """Returns the validation pairs with their translations, one JSON object per line."""
        del task_data
        assert self.corpus is not None
        return translation_lines(self.corpus.validation_text, outputs)
