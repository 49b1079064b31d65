"""Translation: sentence pairs, teacher forcing, BLEU."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transformer.bundle import Bundle
from transformer.bundle.calibration import read_calibration
from transformer.bundle.languages import language_entries, pair_entries, recorded_languages, recorded_pairs
from transformer.data.augment.config import CHANGED
from transformer.data.config import DataConfig
from transformer.data.dataset import PairDataset, PairSubset
from transformer.data.language_pairs import NO_DIRECTION, PAIR_SCORE, Direction, pair_name
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


@dataclass(frozen=True)
class ValidationGroup:
    """Validation pairs of one direction.

    Attributes:
        dataset: Their tokens.
        pairs: Their texts.
        direction: Their languages; empty for a model of one direction.
    """

    dataset: PairDataset | PairSubset
    pairs: list[Pair]
    direction: Direction = NO_DIRECTION

    @property
    def sources(self) -> list[str]:
        """The sources of the pairs."""
        return [source for source, _ in self.pairs]


class _Batch(NamedTuple):
    """Validation lines that are translated together.

    Attributes:
        direction: Their languages.
        lines: Their indices among the sources.
        sources: The sources of the direction.
        longest: Number of tokens of the longest source and the longest target.
    """

    direction: Direction
    lines: NDArray[np.int64]
    sources: list[str]
    longest: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TranslationData(TaskData):
    """Sentence pairs; validation also translates their sources.

    Attributes:
        corpus: The prepared corpus.
        tokenizations: Tokenization of BLEU for each direction, which fits the target language.
    """

    config: EncoderDecoderConfig
    text: TokenizerPair
    corpus: Corpus
    tokenizations: Mapping[Direction, Tokenization]

    def scores(self, model: nn.Module, settings: TrainingSettings, backend: Backend) -> Scores:
        """Computes loss, perplexity, BLEU and chrF on the validation pairs, and perplexities on changed copies.

        Of several directions, the scores are means over the directions, and those of each follow, e.g. `en-de/bleu`.
        """
        objective = self.validation_objective(model, settings)
        groups = self._groups
        by_direction = {
            group.direction: validation_loss(objective, group.dataset, settings.micro_batch_tokens, backend)
            for group in groups
        }
        changed = {
            f"{CHANGED}{kind}": validation_loss(objective, pairs, settings.micro_batch_tokens, backend)["perplexity"]
            for kind, pairs in self.corpus.changed_validation.items()
        }
        outputs, signatures = list[str](), dict[str, str]()
        for group in groups:
            translations, scores = self._score(model, settings, group)
            outputs += translations
            by_direction[group.direction] |= {score.name.lower(): score.value for score in scores}
            signatures |= {score.name.lower(): score.signature for score in scores}
        values = mean_scores(by_direction) | changed
        for name, (dataset, pairs) in self.corpus.further_validation.items():
            losses = validation_loss(objective, dataset, settings.micro_batch_tokens, backend)
            further = self._score(model, settings, ValidationGroup(dataset, pairs))[1]
            values |= {f"{name}_{key}": value for key, value in losses.items()}
            values |= {f"{name}_{score.name.lower()}": score.value for score in further}
        return Scores(values, signatures, outputs)

    def _score(
        self, model: nn.Module, settings: TrainingSettings, group: "ValidationGroup"
    ) -> tuple[list[str], list[Score]]:
        """Returns translations of validation pairs, and their scores."""
        batches = self._batches(settings, group.dataset)
        translations = self._translations(model, settings, group.direction, batches, group.sources)
        outputs = [translations[line] for line in range(len(group.pairs))]
        references = [reference for _, reference in group.pairs]
        return outputs, corpus_scores(outputs, references, self.tokenizations[group.direction])

    def warm_up_validation(self, model: nn.Module, settings: TrainingSettings) -> None:
        """Translates the validation batch with the highest memory use, with all translations at their maximum length.

        It has many short sources rather than few long ones, since a translation may be `EXTRA_TOKENS` longer than its
        source.
        """

        def positions(batch: _Batch) -> int:
            longest = batch.longest[0]
            return len(batch.lines) * (longest + min(longest + EXTRA_TOKENS, self.config.tgt_seq_len))

        direction, largest, sources, longest = max(self._all_batches(settings), key=positions)
        limit = min(longest[0] + EXTRA_TOKENS, self.config.tgt_seq_len)
        self._translations(model, settings, direction, [largest], sources, limit)

    def sample_generation(self, model: nn.Module, settings: TrainingSettings) -> tuple[float, float]:
        """Implements `TaskData.sample_generation`: translations as long as the longest reference of a middle batch."""
        batches = self._all_batches(settings)
        direction, lines, sources, longest = batches[len(batches) // 2]
        limit = min(longest[1], self.config.tgt_seq_len - 1)
        self._translations(model, settings, direction, [lines], sources, limit)
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
    def _groups(self) -> list["ValidationGroup"]:
        """The validation pairs of each direction; of a model of one direction, all pairs."""
        groups: list[ValidationGroup] = []
        first = 0
        for direction, count in self.corpus.validation_groups.items():
            subset = PairSubset(self.corpus.validation, np.arange(first, first + count))
            groups.append(ValidationGroup(subset, self.corpus.validation_text[first : first + count], direction))
            first += count
        return groups

    def _all_batches(self, settings: TrainingSettings) -> list["_Batch"]:
        """Returns the batches of all directions."""
        return [
            _Batch(group.direction, lines, group.sources, tuple(group.dataset.lengths[lines].max(axis=0).tolist()))
            for group in self._groups
            for lines in self._batches(settings, group.dataset)
        ]

    def _batches(self, settings: TrainingSettings, dataset: PairDataset | PairSubset) -> list[NDArray[np.int64]]:
        """Returns the indices of validation lines, grouped into batches for translation."""
        batch_tokens = min(BATCH_TOKENS, settings.micro_batch_tokens)
        return batches_longest_first(dataset.lengths[:, 0], batch_tokens)

    def _translations(
        self,
        model: nn.Module,
        settings: TrainingSettings,
        direction: Direction,
        batches: Sequence[NDArray[np.int64]],
        sources: list[str],
        limit: int | None = None,
    ) -> dict[int, str]:
        """Translates the lines of the batches, by index; free memory is returned to the system before each batch.

        Args:
            model: Model of the run.
            settings: Settings of the training.
            direction: Languages of the lines; empty for a model of one direction.
            batches: Indices of the lines that are translated together.
            sources: Lines of the validation text.
            limit: Exact length of every translation; if None, translations end by themselves.
        """
        longest = self.corpus.report.longest_source
        search = Search(retry_degenerate=False, min_tokens=0 if limit is None else limit - 1)
        on_gpu = next(model.parameters()).device.type == "cuda"
        translator = Translator(
            cast(Transformer, model),
            self.text.to_language(direction[1]),
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
        chosen = range(len(pairs))[:: -(-len(pairs) // CALIBRATION_LINES)]
        if len(chosen) < MIN_LINES:
            chosen = range(len(pairs))[:CALIBRATION_LINES]
        groups = self.corpus.validation_groups
        directions = [direction for direction, count in groups.items() for _ in range(count)]
        calibrate_folder(
            folder, [pairs[line] for line in chosen], settings.seed,
            pair_directions=[directions[line] for line in chosen],
            precision="float32", device=backend.device.type, workers=1, batch_tokens=settings.micro_batch_tokens,
        )  # fmt: skip

    def translations_jsonl(self, outputs: list[str]) -> str:
        """Returns the validation pairs with their translations, one JSON object per line."""
        return translation_lines(self.corpus.validation_text, outputs)


def mean_scores(by_direction: Mapping[Direction, Mapping[str, float]]) -> dict[str, float]:
    """Returns the means of scores over directions and, of several directions, the scores of each behind its name.

    The mean of perplexities is geometric, as that of the losses whose exponentials they are.
    """
    scores = list(by_direction.values())
    if len(scores) == 1:
        return dict(scores[0])
    means = {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}
    means["perplexity"] = math.exp(sum(math.log(score["perplexity"]) for score in scores) / len(scores))
    named = {pair_name(direction): scores for direction, scores in by_direction.items()}
    return means | {
        f"{pair}{PAIR_SCORE}{name}": value for pair, scores in named.items() for name, value in scores.items()
    }


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

    def extend_tokenizers(self, recipe: CompleteRecipe[EncoderDecoderConfig], base_bundle: Bundle) -> Bundle:
        """Implements `Task.extend_tokenizers`."""
        pairs = recorded_pairs(base_bundle) or [recorded_languages(base_bundle)]
        known = {language for pair in pairs for language in pair if language}
        settings = recipe.recipe.tokenizer
        text = self._corpus_builder.extend_tokenizers(base_bundle.tokenizers, settings, known)
        return replace(base_bundle, text=text)

    def prepare(self, recipe: CompleteRecipe[EncoderDecoderConfig], base_bundle: Bundle | None) -> TranslationData:
        """Implements `Task.prepare`."""
        builder, model = self._corpus_builder, recipe.model
        tokenizers = base_bundle.tokenizers if base_bundle else builder.train_tokenizers(recipe.recipe.tokenizer)
        if tokenizers.source.tags and not self._data.directions:
            raise ConfigError(
                "the model that the run starts from has several languages; name those of the corpus in [[data.pairs]]"
            )
        tokenizers = tokenizers.with_tags(self._data.target_languages)
        if "vocab_size" in type(model).model_fields and not tokenizers.is_joint:
            raise ConfigError("tokenizer.joint=false does not work with a model of one vocabulary; leave it out")
        config = set_vocab_sizes(model, tokenizers, base_bundle=base_bundle)
        dropout = recipe.recipe.tokenizer.dropout
        corpus = builder.prepare(tokenizers, (config.src_seq_len, config.tgt_seq_len), dropout)
        report = corpus.report
        languages = self._languages(corpus, base_bundle)
        provenance: dict[str, Any] = {"max_source_tokens": report.longest_source, **languages.entries}
        if corpus.source_text is not None:
            provenance["source_text"] = corpus.source_text.to_dict()
        pads = tokenizers.source.special_tokens.padding, tokenizers.target.special_tokens.padding
        rows = [
            *report.rows(), ("vocabulary", f"{tokenizers}, BPE dropout {dropout}" if dropout else str(tokenizers)),
            ("languages", languages.description),
            ("BLEU", f"tokenized by {', '.join(dict.fromkeys(languages.tokenizations.values()))}"),
        ]  # fmt: skip

        def objective(model: nn.Module, settings: TrainingSettings) -> nn.Module:
            return TranslationObjective(
                cast(Transformer, model), settings.label_smoothing, r_drop=settings.r_drop, pad_ids=pads,
                activation_checkpointing=settings.activation_checkpointing,
            )  # fmt: skip

        return TranslationData(
            config=config, text=tokenizers, objective=objective, train=corpus.train, validation=corpus.validation,
            rows=rows, facts=report.to_dict(), notes=corpus.notes, provenance=provenance, corpus=corpus,
            tokenizations=languages.tokenizations, stages=corpus.stages,
            fallback_shares=dict(zip(("source", "target"), report.fallback_shares(), strict=True)),
        )  # fmt: skip

    def _languages(self, corpus: Corpus, base_bundle: Bundle | None) -> "CorpusLanguages":
        """Returns the languages of the corpus, by the tables of the recipe, or identified."""
        pairs, directions = corpus.validation_text, self._data.directions
        tokenizations: dict[Direction, Tokenization] = {}
        first = 0
        if directions:
            for direction, count in corpus.validation_groups.items():
                references = [reference for _, reference in pairs[first : first + count]]
                tokenizations[direction] = fitting_tokenization(references, direction[1])
                first += count
            learned = (*recorded_pairs(base_bundle), *directions) if base_bundle else directions
            return CorpusLanguages(pair_entries(learned), ", ".join(map(pair_name, directions)), tokenizations)
        pretrained = recorded_languages(base_bundle) if base_bundle else (None, None)
        source, target = identify_languages(self._data, pairs, pretrained)
        tokenization = fitting_tokenization([reference for _, reference in pairs], target.tag)
        entries = language_entries(source.tag, target.tag)
        return CorpusLanguages(entries, f"source {source}, target {target}", {NO_DIRECTION: tokenization})


@dataclass(frozen=True)
class CorpusLanguages:
    """Languages of a corpus.

    Attributes:
        entries: Their entry in the provenance of the model.
        description: Their names, for users.
        tokenizations: Tokenization of BLEU for each direction.
    """

    entries: Mapping[str, Any]
    description: str
    tokenizations: Mapping[Direction, Tokenization]
