"""Fields that all translating routes have beside those of their interface."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field

from transformer.options.fields import Count, Doc
from transformer.options.search import Beam
from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call
from transformer.serving.translation import AUTO, TranslatedText, TranslateOptions
from transformer.text.markup_templates import Markup

MAX_LENGTH_PENALTY: Final = 5.0


class TranslateFields(BaseModel):
    """Options of a translation beyond those of other servers."""

    model_config = ConfigDict(extra="ignore")

    beam: Beam | None = None
    alternatives: Annotated[Count, Doc("number of further translations of each text")] = 0
    length_penalty: (
        Annotated[
            float,
            Ge(0),
            Le(MAX_LENGTH_PENALTY),
            Doc("exponent of the length penalty of the paper; larger values favour longer translations"),
        ]
        | None
    ) = None
    glossary: Annotated[
        dict[str, str] | str | None,
        Doc("target terms by source term, or the identifier of a glossary that was stored by `/v2/glossaries`"),
    ] = None
    protected: Annotated[
        list[str], Doc("kinds of spans to keep unchanged, see `--protect`; all but numbers if empty")
    ] = Field(default_factory=list[str])
    banned: Annotated[list[str], Doc("words and phrases that must not occur")] = Field(default_factory=list[str])
    pivot: Annotated[bool, Doc("whether a pair without a model may be translated through a third language")] = False
    model: Annotated[str, Doc("name of the model; by default, the first one for the languages")] = ""
    details: Annotated[
        bool, Doc("whether scores, notes, word alignments, names of models and numbers of tokens are returned")
    ] = False


class Details(BaseModel):
    """Facts of a translation.

    Attributes:
        score: Log-probability of the translation.
        flags: Notes on its quality.
        alignment: Pairs of word positions in source and translation, counted from 0; words are separated by white
            space. None for a text with markup.
        models: Names of the models; two for a translation through a third language.
        unsure: First and last word, counted from 0, of each part whose translation is unsure; none for a text with
            markup.
        source_tokens: Number of source tokens.
        target_tokens: Number of target tokens.
    """

    score: float
    flags: list[str]
    alignment: list[tuple[int, int]] | None
    models: list[str]
    unsure: list[tuple[int, int]]
    source_tokens: int
    target_tokens: int


async def translate(
    call: Call, texts: Sequence[str], source: str, target: str, fields: TranslateFields, options: TranslateOptions
) -> list[TranslatedText]:
    """Translates the texts of a request and counts their characters.

    Args:
        call: The request.
        texts: Its texts.
        source: Tag of their language, or "auto".
        target: Tag of the language to translate to.
        fields: Fields of the request.
        options: Options that the interface has set; those of `fields` are added.

    Raises:
        ServiceError: See `TranslationService.translate`; or the glossary does not exist or has an empty term.
    """
    service = call.services.translation
    options = with_fields(call, source, target, fields, options)
    translated = await service.translate(texts, source, target, options, client=call.client, deadline=call.deadline)
    service.characters[call.owner] += sum(map(len, texts))
    return translated


def with_fields(
    call: Call, source: str, target: str, fields: TranslateFields, options: TranslateOptions
) -> TranslateOptions:
    """Returns options with those of a request's fields added; see `translate`."""
    return replace(
        options,
        beam=options.beam if fields.beam is None else fields.beam,
        n_best=fields.alternatives + 1,
        length_penalty=fields.length_penalty,
        glossary=options.glossary or _terms(call, fields.glossary, source, target),
        protected=tuple(fields.protected),
        banned=_phrases(fields.banned),
        alignment=fields.details,
        model=fields.model,
        may_pivot=fields.pivot,
    )


def details(translated: TranslatedText) -> Details:
    """Returns the facts of a translation."""
    alignment = None if translated.alignment is None else list(translated.alignment)
    return Details(
        score=translated.score,
        flags=list(translated.flags),
        alignment=alignment,
        models=list(translated.models),
        unsure=list(translated.unsure),
        source_tokens=translated.source_tokens,
        target_tokens=translated.target_tokens,
    )


def html_markup(text_format: str) -> Markup | None:
    """Returns how a text of a format ("text" or "html") is read."""
    return Markup("html") if text_format == "html" else None


def _terms(call: Call, glossary: dict[str, str] | str | None, source: str, target: str) -> tuple[tuple[str, str], ...]:
    """Returns the terms of a glossary in a request: an object, or the identifier of a stored one."""
    if not glossary:
        return ()
    if isinstance(glossary, str):
        if source == AUTO:
            raise ServiceError("invalid_request", "a stored glossary needs the source language", param="source")
        return call.services.glossaries.get(call.owner, glossary).dictionary(source, target).terms
    if not all(term.strip() for pair in glossary.items() for term in pair):
        raise ServiceError("invalid_request", "glossary: a term is empty; leave it out", param="glossary")
    return tuple(glossary.items())


def _phrases(banned: Sequence[Any]) -> tuple[str, ...]:
    if not all(phrase.strip() for phrase in banned):
        raise ServiceError("invalid_request", "banned: a phrase is empty; leave it out", param="banned")
    return tuple(banned)
