"""The interface of DeepL, version 2; glossaries and documents have modules of their own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from transformer.serving.operations import Call, Operation
from transformer.serving.routes.deepl_documents import DOCUMENT_OPERATIONS
from transformer.serving.routes.deepl_fields import Names, SharedFields, Texts, options_of
from transformer.serving.routes.deepl_glossaries import GLOSSARY_OPERATIONS, INTERFACE, deepl_code, error_form
from transformer.serving.routes.translate_fields import Details, details, translate
from transformer.serving.translation import AUTO, TranslatedText
from transformer.text.languages import language_name
from transformer.text.markup_templates import Markup

CHARACTER_LIMIT: Final = 10**12
"""Number that `/v2/usage` gives as the limit, as for accounts of DeepL without one."""
VARIANTS: Final = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT"), "zh": ("ZH", "ZH-HANS")}
"""Target languages for which clients name a region or script; DeepL's clients refuse `EN` and `PT`."""


class DeepLRequest(SharedFields):
    """Texts to translate.

    Attributes:
        text: Text, or list of texts.
        context: Text around the texts; it is accepted and has no effect.
        split_sentences: With "nonewlines", a line end is a space; the other values have no effect.
        preserve_formatting: Accepted; formatting is always kept.
        tag_handling: "html" or "xml" for texts with markup.
        outline_detection: Whether elements of XML end a sentence unless there is text beside them.
        splitting_tags: Names of elements that end a sentence.
        non_splitting_tags: Names of elements that do not end a sentence.
        ignore_tags: Names of elements whose contents are not translated.
        show_billed_characters: Whether the number of characters of each text is returned.
    """

    text: Texts
    context: str | None = None
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] | bool | None = None
    preserve_formatting: bool | None = None
    tag_handling: Literal["html", "xml", ""] | None = None
    outline_detection: bool = True
    splitting_tags: Names = Field(default_factory=list[str])
    non_splitting_tags: Names = Field(default_factory=list[str])
    ignore_tags: Names = Field(default_factory=list[str])
    show_billed_characters: bool = False


class Translation(BaseModel):
    """A translated text.

    Attributes:
        detected_source_language: Language of the text.
        text: Translation.
        billed_characters: Number of characters of the text, if asked for.
        model_type_used: Type of the model, if one was asked for.
        confidence: Expected chrF of the translation over 100, from 0 to 1, the lowest one of its parts; left out if the
            model was not calibrated.
        alternatives: Further translations, if asked for.
        details: Facts of the translation, if asked for.
    """

    detected_source_language: str
    text: str
    billed_characters: int | None = None
    model_type_used: str | None = None
    confidence: float | None = None
    alternatives: list[str] | None = None
    details: Details | None = None


class TranslationsResponse(BaseModel):
    """Translations of all texts, in order."""

    translations: list[Translation]


class LanguagesRequest(BaseModel):
    """Choice between source and target languages."""

    type: Literal["source", "target"] = "source"


class Language(BaseModel):
    """A language; `supports_formality` is given for target languages."""

    language: str
    name: str
    supports_formality: bool | None = None


class UsageResponse(BaseModel):
    """Number of characters that the owner of the key has sent since the server started, and a nominal limit."""

    character_count: int
    character_limit: int


async def translate_texts(call: Call) -> dict[str, Any]:
    """Translates texts."""
    request: DeepLRequest = call.body
    source = request.source_lang or AUTO
    may_join_lines = request.split_sentences == "nonewlines"
    options = replace(options_of(call, request), markup=_markup(request), may_join_lines=may_join_lines)
    translated = await translate(call, request.text, source, request.target_lang, request, options)
    answers = [_answer(text, one, request) for text, one in zip(request.text, translated, strict=True)]
    return {"translations": answers}


async def languages(call: Call) -> list[dict[str, Any]]:
    """Lists source or target languages."""
    request: LanguagesRequest = call.body
    pairs = call.services.translation.languages()
    if request.type == "source":
        codes = dict.fromkeys(deepl_code(tag) for tag in pairs)
        return [{"language": code, "name": language_name(code)} for code in codes]
    tags = dict.fromkeys(tag for targets in pairs.values() for tag in targets)
    codes = dict.fromkeys(code for tag in tags for code in VARIANTS.get(tag, (tag.upper(),)))
    return [{"language": code, "name": language_name(code), "supports_formality": False} for code in codes]


async def usage(call: Call) -> UsageResponse:
    """Counts characters."""
    count = call.services.translation.characters[call.owner]
    return UsageResponse(character_count=count, character_limit=CHARACTER_LIMIT)


def _markup(request: DeepLRequest) -> Markup | None:
    if not request.tag_handling:
        return None
    names = (request.ignore_tags, request.splitting_tags, request.non_splitting_tags)
    ignored, splitting, non_splitting = (frozenset(part) for part in names)
    return Markup(request.tag_handling, ignored, splitting, non_splitting, request.outline_detection)


def _answer(text: str, translated: TranslatedText, request: DeepLRequest) -> dict[str, Any]:
    answer: dict[str, Any] = {"detected_source_language": deepl_code(translated.source), "text": translated.text}
    if translated.expected_chrf is not None:
        answer["confidence"] = translated.expected_chrf
    if request.show_billed_characters:
        answer["billed_characters"] = len(text)
    if request.model_type:
        answer["model_type_used"] = request.model_type.removeprefix("prefer_")
    if request.alternatives:
        answer["alternatives"] = list(translated.alternatives)
    if request.details:
        answer["details"] = details(translated)
    return answer


def _operation(method: Any, path: str, summary: str, handler: Any, **rest: Any) -> Operation:
    return Operation(method, path, summary, handler, error_form, interface=INTERFACE, **rest)


OPERATIONS: Final[Sequence[Operation]] = (
    _operation(
        "POST", "/v2/translate", "Translates texts", translate_texts,
        request=DeepLRequest, response=TranslationsResponse, accepts=("json", "form"), errors=(404,),
    ),
    _operation(
        "GET", "/v2/languages", "Source or target languages", languages,
        request=LanguagesRequest, response=list[Language], accepts=("query", "form"),
    ),
    _operation("GET", "/v2/usage", "Number of characters sent", usage, response=UsageResponse),
    *DOCUMENT_OPERATIONS,
    *GLOSSARY_OPERATIONS,
)  # fmt: skip
