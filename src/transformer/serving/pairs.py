"""Pairs of languages that the models translate, and the models for a pair."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import ModelInfo
from transformer.text.languages import matching_tag, parse_language


@dataclass(frozen=True)
class Step:
    """A translation by one model.

    Attributes:
        model: Name of the model.
        languages: Its source and target language, if the model has several directions; empty otherwise.
        is_learned: Whether the model learned the direction from pairs of texts; if not, the translation is zero-shot.
    """

    model: str
    languages: tuple[str, ...] = ()
    is_learned: bool = True


@dataclass(frozen=True)
class Route:
    """Route from one language to another, directly or through a pivot language.

    Attributes:
        source: Tag of the language of the texts.
        steps: Translations in order: none if the languages are the same, two through a third language.
    """

    source: str
    steps: tuple[Step, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models to use in order."""
        return tuple(step.model for step in self.steps)


class LanguagePairs:
    """Finds models for pairs of languages. Of several models for a pair, the first is used.

    Args:
        models: Models by name.
    """

    def __init__(self, models: Mapping[str, ModelInfo]) -> None:
        self._translators = {name: info for name, info in models.items() if info.kind == "encoder-decoder"}
        self._models: dict[str, dict[str, str]] = {}
        for name, info in self._translators.items():
            for source, target in _directions(info):
                self._models.setdefault(source, {}).setdefault(target, name)

    def targets(self) -> dict[str, list[str]]:
        """Returns the target languages of each source language that one model reaches."""
        return {source: list(targets) for source, targets in self._models.items()}

    def all_languages(self) -> list[str]:
        """Returns the tags of all languages, each once."""
        tags = [tag for source, targets in self._models.items() for tag in (source, *targets)]
        return list(dict.fromkeys(tags))

    def sources(self, target: str, model: str, *, may_pivot: bool) -> list[str]:
        """Returns the source languages from which a target can be reached.

        Args:
            target: Tag as requested.
            model: Name of the model to use; empty for any.
            may_pivot: Whether a third language may be used.

        Raises:
            ServiceError: There is none, or the model does not exist or its languages are unknown.
        """
        if model:
            info = self._translator(model)
            sources = list(dict.fromkeys(source for source, _ in info.directions)) or [info.source_language]
        else:
            sources = [source for source in self._models if self._route(source, target, may_pivot)]
        if not all(sources) or not sources:
            raise self._unsupported_error("", target, may_pivot)
        return sources

    def known_source(self, source: str, target: str, model: str) -> str:
        """Returns the served tag that suits a source language; the tag itself if it is the target or of a named model.

        Raises:
            ServiceError: The tag is not one of a language, or no model translates from it.
        """
        if known := matching_tag(source, self._models):
            return known
        if (tag := parse_language(source)) and (model or matching_tag(tag, [target])):
            return tag
        raise self._unsupported_error(source, target, may_pivot=True)

    def route(self, source: str, target: str, model: str, *, may_pivot: bool) -> Route:
        """Returns the route from a source language to a target.

        Args:
            source: Served tag, see `known_source`.
            target: Tag as requested.
            model: Name of the model to use; empty chooses by the languages.
            may_pivot: Whether a third language may be used if no model translates the pair.

        Raises:
            ServiceError: No model translates the pair, or the named one does not.
        """
        if model:
            info = self._translator(model)
            if info.directions:
                return Route(source, (_step_of_several(info, source, target),))
            for asked, known in ((source, info.source_language), (target, info.target_language)):
                if known and not matching_tag(asked, [known]):
                    languages = f"{info.source_language} to {info.target_language}"
                    raise ServiceError("invalid_request", f"model {model!r} translates from {languages}", param="model")
            return Route(source, (Step(model),))
        if matching_tag(target, [source]) and self._route(source, target, may_pivot=False) is None:
            return Route(source, ())
        steps = self._route(source, target, may_pivot)
        if steps is None:
            raise self._unsupported_error(source, target, may_pivot)
        return Route(source, steps)

    def _step(self, source: str, target: str) -> Step:
        """Returns the translation between languages of `_models`."""
        model = self._models[source][target]
        return Step(model, (source, target) if self._translators[model].directions else ())

    def _route(self, source: str, target: str, may_pivot: bool) -> tuple[Step, ...] | None:
        """Returns the steps from a served tag to a target: of learned pairs, or else by a model of several languages.

        A pivot language is preferred to a zero-shot translation (Johnson et al. 2017, Sec. 4.6).
        """
        targets = self._models.get(source, {})
        if direct := matching_tag(target, targets):
            return (self._step(source, direct),)
        for middle in targets if may_pivot else ():
            pivot = matching_tag(middle, self._models)
            last = matching_tag(target, self._models[pivot]) if pivot else None
            if pivot and last and not matching_tag(source, [last]):
                return self._step(source, middle), self._step(pivot, last)
        steps = (_zero_shot(info, source, target) for info in self._translators.values())
        return next(((step,) for step in steps if step), None)

    def _translator(self, model: str) -> ModelInfo:
        if model not in self._translators:
            names = ", ".join(self._translators) or "none"
            raise ServiceError(
                "invalid_request", f"no translation model has this name; there are: {names}", param="model"
            )
        return self._translators[model]

    def _unsupported_error(self, source: str, target: str, may_pivot: bool) -> ServiceError:
        pairs = ", ".join(f"{first}-{last}" for first, targets in self._models.items() for last in targets) or "none"
        for tag, param in ((source, "source"), (target, "target")):
            if tag and not parse_language(tag):
                return ServiceError(
                    "invalid_request", f"{param}: {tag[:20]!r} is not a language; pairs: {pairs}", param=param
                )
        pair = f"from {source[:35]} to {target[:35]}" if source else f"to {target[:35]}"
        hint = "" if may_pivot else " (pivot allows a third language)"
        return ServiceError("invalid_request", f"no model translates {pair}{hint}; pairs: {pairs}", param="target")


def _directions(info: ModelInfo) -> tuple[tuple[str, str], ...]:
    """Returns the pairs that a model learned; none if they are unknown."""
    is_known = info.source_language and info.target_language
    return info.directions or (((info.source_language, info.target_language),) if is_known else ())


def _zero_shot(info: ModelInfo, source: str, target: str) -> Step | None:
    """Returns the translation by a model of several languages, learned or not; None if it lacks a language."""
    reads = matching_tag(source, [language for language, _ in info.directions])
    writes = matching_tag(target, [language for _, language in info.directions])
    if not reads or not writes or reads == writes:
        return None
    return Step(info.name, (reads, writes), (reads, writes) in info.directions)


def _step_of_several(info: ModelInfo, source: str, target: str) -> Step:
    """Same as `_zero_shot`.

    Raises:
        ServiceError: The model does not read the source language, or does not write the target language.
    """
    step = _zero_shot(info, source, target)
    if step is None:
        pairs = ", ".join("-".join(pair) for pair in info.directions)
        raise ServiceError("invalid_request", f"model {info.name!r} translates {pairs}", param="model")
    return step
