"""The stages of a translation, made for the models of a translator and the options of a call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from transformer.decoding import Search
from transformer.errors import ConfigError
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.assemble import Assembler
from transformer.pipelines.translation.checks import Checker
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.constraints import banned_sequences
from transformer.pipelines.translation.directions import choose_languages
from transformer.pipelines.translation.reranking import check_reranking
from transformer.pipelines.translation.segment import Segmenter, copied_names
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.truecasing import make_truecaser
from transformer.pipelines.translation.unseen import UnseenCharacters
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer


@dataclass(frozen=True)
class Stages:
    """The stages before and after the search.

    Attributes:
        options: Options of the call, which all stages read.
        segmenter: The first stage.
        assembler: The third stage.
        checker: The fourth stage.
    """

    options: TranslatorConfig
    segmenter: Segmenter
    assembler: Assembler
    checker: Checker


class StageFactory:
    """Completes the options of calls by what depends on the models, and makes the stages for them.

    Args:
        settings: Options of the translator.
        models: Models of the ensemble.
        sources: Source tokenizer of each model.
        tokenizers: Tokenizers of the first model.
        device: Device of the models.
        has_reverse: Whether hypotheses are ranked by a model of the other direction as well.
    """

    def __init__(
        self,
        settings: TranslatorConfig,
        models: Sequence[Transformer],
        sources: Sequence[Tokenizer],
        tokenizers: TokenizerPair,
        device: torch.device,
        *,
        has_reverse: bool,
    ) -> None:
        self._models, self._sources, self._tokenizers = models, sources, tokenizers
        self._device, self._has_reverse = device, has_reverse
        source_text = settings.source_text
        self._unseen = UnseenCharacters(tokenizers.source, source_text.characters if source_text else None)
        self._names = copied_names(tokenizers)
        self._truecaser = "", make_truecaser(tokenizers.source, "")  # of the language that was used last

    def options(
        self,
        settings: TranslatorConfig,
        search: Search | None = None,
        terminology: Terminology | None = None,
        languages: Mapping[str, Any] | None = None,
    ) -> TranslatorConfig:
        """Returns the options of a translator with those of a call, completed and checked.

        Args:
            settings: Options of the translator.
            search: Options of the search, instead of the translator's.
            terminology: Terms and protected spans, instead of the translator's.
            languages: Source and target language by name, instead of the translator's.

        Raises:
            ConfigError: They contradict each other or the models.
        """
        options = replace(settings, search=search or settings.search, terminology=terminology or settings.terminology)
        options = replace(options, **{name: tag for name, tag in (languages or {}).items() if tag})
        source_language, target_language = choose_languages(options, self._tokenizers)
        options = replace(options, source_language=source_language, target_language=target_language)
        options = options.completed(self._models, self._tokenizers.target, on_gpu=self._device.type == "cuda")
        check_reranking(options.search, options.task, has_reverse=self._has_reverse)
        if options.search.coverage and any(source is not self._sources[0] for source in self._sources):
            raise ConfigError("coverage needs models with the same source tokenizer; leave out coverage or the others")
        banned = *map(tuple, options.search.banned), *banned_sequences(self._tokenizers.target, options.terminology)
        return replace(options, search=replace(options.search, banned=banned))

    def stages(self, options: TranslatorConfig) -> Stages:
        """Returns the stages for the options of a call, see `options`."""
        tag = "" if self._sources[0].language_prefix(options.task) else options.target_language
        tokenizers = self._tokenizers.to_language(tag)
        assembler = Assembler(options, tokenizers, Aligner(self._models[0], tokenizers, self._device))
        return Stages(options, self._segmenter(options, tag), assembler, Checker(options, tokenizers))

    def _segmenter(self, options: TranslatorConfig, tag: str) -> Segmenter:
        distinct = {id(source): source.to_language(tag).reading_task(options.task) for source in self._sources}
        first, *others = (distinct[id(source)] for source in self._sources)
        language, truecaser = self._truecaser
        if language != options.source_language:
            truecaser = make_truecaser(self._sources[0], options.source_language)
            self._truecaser = options.source_language, truecaser
        tokenizers = replace(self._tokenizers, source=first)
        return Segmenter(options, tokenizers, [first, *others], self._unseen, truecaser, self._names)
