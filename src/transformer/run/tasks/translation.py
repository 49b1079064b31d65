"""Translation: sentence pairs, teacher forcing, BLEU."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.bundle import Bundle
from transformer.bundle.calibration import read_calibration
from transformer.bundle.languages import language_entries, recorded_languages
from transformer.data.augment.config import CHANGED
from transformer.data.config import DataConfig
from transformer.data.dataset import PairDataset
from transformer.data.languages import identify_languages
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.data.progress import Progress
from transformer.data.readers import Pair
from transformer.decoding import Search
from transformer.errors import ConfigError
from transformer.evaluation.scores import Score, corpus_scores
from transformer.evaluation.tokenization import Tokenization, fitting_tokenization
from transformer.models.kinds import EncoderDecoderConfig, ModelConfig
from transformer.pipelines.translation.calibration import BEAM, MIN_LINES, calibrate_folder
from transformer.pipelines.translation.config import BATCH_TOKENS, default_batch_tokens
from transformer.pipelines.translation.segment import EXTRA_TOKENS
from transformer.pipelines.translation.translator import Translator
from transformer.reporting.record import translation_lines
from transformer.run.defaults import CompleteRecipe, TaskDefaults, corpus_defaults
from transformer.run.recipe import Recipe
from transformer.run.task import Scores, Task, TaskData, set_vocab_sizes
from transformer.runtime.allocator import trim_heap
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.backend import Backend
from transformer.training.config import TrainingConfig, TrainingSettings
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.validation import batches_longest_first, validation_loss
from transformer.transformer import Transformer

CALIBRATION_LINES: Final = 200
"""Maximum number of validation pairs that the confidence is fitted to, beside as many spoiled ones."""
CALIBRATION_COST: Final = (1 + BEAM) / 2
"""Cost of calibrating with a line, relative to translating it in a validation: both searches, by a faster engine."""
DROPOUTS: Final = ("dropout", "attention_dropout", "activation_dropout")


@dataclass(frozen=True, kw_only=True)
class TranslationData(TaskData):
    """Sentence pairs; validation also translates their sources.

    Attributes:
        corpus: The prepared corpus.
        tokenization: Tokenization of BLEU, which fits the target language.
    """

    config: EncoderDecoderConfig
    text: TokenizerPair
    corpus: Corpus
    tokenization: Tokenization

    def scores(self, model: nn.Module, settings: TrainingSettings, backend: Backend) -> Scores:
        """Computes loss, perplexity, BLEU and chrF on the validation pairs, and perplexities on changed copies."""
        values = super().scores(model, settings, backend).values
        objective = self.validation_objective(model, settings)
        for kind, pairs in self.corpus.changed_validation.items():
            losses = validation_loss(objective, pairs, settings.micro_batch_tokens, backend)
            values[f"{CHANGED}{kind}"] = losses["perplexity"]
        outputs, scores = self._score(model, settings, self.corpus.validation, self.corpus.validation_text)
        values |= {score.name.lower(): score.value for score in scores}
        signatures = {score.name.lower(): score.signature for score in scores}
        for name, (dataset, pairs) in self.corpus.further_validation.items():
            losses = validation_loss(objective, dataset, settings.micro_batch_tokens, backend)
            further = self._score(model, settings, dataset, pairs)[1]
            values |= {f"{name}_{key}": value for key, value in losses.items()}
            values |= {f"{name}_{score.name.lower()}": score.value for score in further}
        return Scores(values, signatures, outputs)

    def _score(
        self, model: nn.Module, settings: TrainingSettings, dataset: PairDataset, pairs: list[Pair]
    ) -> tuple[list[str], list[Score]]:
        """Returns translations of validation pairs, and their scores."""
        batches = self._batches(settings, dataset)
        translations = self._translations(model, settings, batches, [source for source, _ in pairs])
        outputs = [translations[line] for line in range(len(pairs))]
        return outputs, corpus_scores(outputs, [reference for _, reference in pairs], self.tokenization)

    def warm_up_validation(self, model: nn.Module, settings: TrainingSettings) -> None:
        """Translates the validation batch with the highest memory use, with all translations at their maximum length.

        It has many short sources rather than few long ones, since a translation may be `EXTRA_TOKENS` longer than its
        source.
        """
        lengths = self.corpus.validation.lengths[:, 0]

        def positions(lines: NDArray[np.int64]) -> int:
            longest = int(lengths[lines].max())
            return len(lines) * (longest + min(longest + EXTRA_TOKENS, self.config.tgt_seq_len))

        largest = max(self._batches(settings, self.corpus.validation), key=positions)
        limit = min(int(lengths[largest].max()) + EXTRA_TOKENS, self.config.tgt_seq_len)
        self._translations(model, settings, [largest], self._sources, limit)

    def sample_generation(self, model: nn.Module, settings: TrainingSettings) -> tuple[float, float]:
        """Implements `TaskData.sample_generation`: translations as long as the longest reference of a middle batch."""
        batches = self._batches(settings, self.corpus.validation)
        lines = batches[len(batches) // 2]
        longest = int(self.corpus.validation.lengths[lines, 1].max())
        self._translations(model, settings, [lines], self._sources, min(longest, self.config.tgt_seq_len - 1))
        n_pairs = len(self.corpus.validation_text)
        calibrated = 2 * min(n_pairs, CALIBRATION_LINES) if n_pairs >= MIN_LINES else 0
        further = (dataset for dataset, _ in self.corpus.further_validation.values())
        n_batches = len(batches) + sum(len(self._batches(settings, dataset)) for dataset in further)
        return float(n_batches), CALIBRATION_COST * calibrated / len(lines)

    def validation_positions(self) -> int:
        """Implements `TaskData.validation_positions`: those of changed copies and of stages are included."""
        further = (dataset for dataset, _ in self.corpus.further_validation.values())
        others = [*self.corpus.changed_validation.values(), *further]
        return super().validation_positions() + sum(int(pairs.lengths.max(axis=1).sum()) for pairs in others)

    @property
    def _sources(self) -> list[str]:
        return [source for source, _ in self.corpus.validation_text]

    def _batches(self, settings: TrainingSettings, dataset: PairDataset) -> list[NDArray[np.int64]]:
        """Returns the indices of validation lines, grouped into batches for translation."""
        batch_tokens = min(BATCH_TOKENS, settings.micro_batch_tokens)
        return batches_longest_first(dataset.lengths[:, 0], batch_tokens)

    def _translations(
        self,
        model: nn.Module,
        settings: TrainingSettings,
        batches: Sequence[NDArray[np.int64]],
        sources: list[str],
        limit: int | None = None,
    ) -> dict[int, str]:
        """Translates the lines of the batches, by index; free memory is returned to the system before each batch.

        Args:
            model: Model of the run.
            settings: Settings of the training.
            batches: Indices of the lines that are translated together.
            sources: Lines of the validation text.
            limit: Exact length of every translation; if None, translations end by themselves.
        """
        longest = self.corpus.report.longest_source
        search = Search(retry_degenerate=False, min_tokens=0 if limit is None else limit - 1)
        on_gpu = next(model.parameters()).device.type == "cuda"
        translator = Translator(
            cast(Transformer, model),
            self.text,
            max_source_tokens=longest,
            max_target_tokens=limit,
            search=search,
            batch_tokens=min(default_batch_tokens(search.beam, on_gpu=on_gpu), settings.micro_batch_tokens),
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

    def calibrate(self, folder: Path, settings: TrainingSettings, backend: Backend) -> None:
        """Implements `TaskData.calibrate`: fits the confidence to some of the validation pairs, if there are enough."""
        pairs = self.corpus.validation_text
        if len(pairs) < MIN_LINES or read_calibration(folder):
            return
        chosen = pairs[:: -(-len(pairs) // CALIBRATION_LINES)]
        calibrate_folder(
            folder, chosen if len(chosen) >= MIN_LINES else pairs[:CALIBRATION_LINES], settings.seed,
            precision="float32", device=backend.device.type, workers=1, batch_tokens=settings.micro_batch_tokens,
        )  # fmt: skip

    def translations_jsonl(self, outputs: list[str]) -> str:
        """Returns the validation pairs with their translations, one JSON object per line."""
        return translation_lines(self.corpus.validation_text, outputs)


class TranslationTask(Task[EncoderDecoderConfig]):
    """Translates between languages, or maps any text to another text."""

    name, model_type = "translation", EncoderDecoderConfig
    metrics = ("bleu", "chrf", "loss")
    has_bpe_dropout = True

    def __init__(self, data: DataConfig, seed: int, folder: Path, progress: Progress) -> None:
        self._data, self._corpus_builder = data, CorpusBuilder(data, seed, folder, progress)
        self.checksums = self._corpus_builder.checksums

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`: chooses by the size of the corpus."""
        return corpus_defaults(recipe, self._corpus_builder.scan().pairs)

    def check_training(self, training: TrainingConfig, model: ModelConfig) -> None:
        """Implements `Task.check_training`."""
        if training.r_drop and not any(model.model_dump().get(name) for name in DROPOUTS):
            raise ConfigError(
                "training.r_drop compares two passes that differ by dropout alone, but the dropout is 0; "
                "set model.dropout, or leave training.r_drop out"
            )

    def prepare(self, recipe: CompleteRecipe[EncoderDecoderConfig], base_bundle: Bundle | None) -> TranslationData:
        """Implements `Task.prepare`."""
        builder, model = self._corpus_builder, recipe.model
        tokenizers = base_bundle.tokenizers if base_bundle else builder.train_tokenizers(recipe.recipe.tokenizer)
        if "vocab_size" in type(model).model_fields and not tokenizers.is_joint:
            raise ConfigError("tokenizer.joint=false does not work with a model of one vocabulary; leave it out")
        config = set_vocab_sizes(model, tokenizers, base_bundle=base_bundle)
        dropout = recipe.recipe.tokenizer.dropout
        corpus = builder.prepare(tokenizers, (config.src_seq_len, config.tgt_seq_len), dropout)
        report, pairs = corpus.report, corpus.validation_text
        pretrained = recorded_languages(base_bundle) if base_bundle else (None, None)
        source, target = identify_languages(self._data, pairs, pretrained)
        tokenization = fitting_tokenization([reference for _, reference in pairs], target.tag)
        provenance: dict[str, Any] = {"max_source_tokens": report.longest_source}
        provenance |= language_entries(source.tag, target.tag)
        if corpus.source_text is not None:
            provenance["source_text"] = corpus.source_text.to_dict()
        pads = tokenizers.source.special_tokens.padding, tokenizers.target.special_tokens.padding
        rows = [
            *report.rows(), ("vocabulary", f"{tokenizers}, BPE dropout {dropout}" if dropout else str(tokenizers)),
            ("languages", f"source {source}, target {target}"),
            ("BLEU", f"tokenized by {tokenization}"),
        ]  # fmt: skip

        def objective(model: nn.Module, settings: TrainingSettings) -> nn.Module:
            return TranslationObjective(
                cast(Transformer, model), settings.label_smoothing, r_drop=settings.r_drop, pad_ids=pads,
                activation_checkpointing=settings.activation_checkpointing,
            )  # fmt: skip

        return TranslationData(
            config=config, text=tokenizers, objective=objective, train=corpus.train, validation=corpus.validation,
            rows=rows, facts=report.to_dict(), notes=corpus.notes, provenance=provenance, corpus=corpus,
            tokenization=tokenization, stages=corpus.stages,
            fallback_shares=dict(zip(("source", "target"), report.fallback_shares(), strict=True)),
        )  # fmt: skip
