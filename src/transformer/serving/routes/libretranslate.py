"""The interface of LibreTranslate."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.libretranslate_files import file_operations
from transformer.serving.routes.translate_fields import Details, TranslateFields, details, html_markup, translate
from transformer.serving.translation import AUTO, TranslatedText, TranslateOptions
from transformer.text.languages import language_name

INTERFACE: Final = "LibreTranslate"
FRONTEND_TIMEOUT: Final = 500
"""Time in ms that a page waits after a key is pressed before it sends a request."""
UNLIKELY: Final = 10
"""Confidence below which `/detect` does not name further languages."""


class TranslateRequest(TranslateFields):
    """Texts to translate.

    Attributes:
        q: Text, or list of texts.
        source: Language of the texts (BCP 47), or "auto".
        target: Language to translate to.
        format: "text" or "html".
        api_key: Key, if the server needs one.
    """

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    api_key: str = ""


class DetectedLanguage(BaseModel):
    """A language that a text may be in, and the confidence in percent."""

    language: str
    confidence: float


class TranslateResponse(BaseModel):
    """Translations; for a list of texts, all fields are lists, one element per text.

    Attributes:
        translatedText: Best translation.
        detectedLanguage: Language of the text, if it was to be detected.
        confidence: Expected chrF of the translation over 100, from 0 to 1, the lowest one of its parts; left out if the
            model was not calibrated.
        alternatives: Further translations, if asked for.
        details: Facts of the translation, if asked for.
    """

    model_config = ConfigDict(populate_by_name=True)

    translated_text: str | list[str] = Field(alias="translatedText")
    detected_language: DetectedLanguage | list[DetectedLanguage] | None = Field(None, alias="detectedLanguage")
    confidence: float | list[float | None] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    details: Details | list[Details] | None = None


class DetectRequest(BaseModel):
    """Text whose language is to be detected."""

    q: str
    api_key: str = ""


class Language(BaseModel):
    """A language and those that its texts can be translated to."""

    code: str
    name: str
    targets: list[str]


def error_form(error: ServiceError) -> dict[str, Any]:
    """Returns the body of an error."""
    return {"error": error.message}


async def translate_texts(call: Call) -> dict[str, Any]:
    """Translates a text or a list of texts."""
    request: TranslateRequest = call.body
    texts = [request.q] if isinstance(request.q, str) else request.q
    source = AUTO if request.source.lower() == AUTO else request.source
    options = TranslateOptions(markup=html_markup(request.format))
    translated = await translate(call, texts, source, request.target, request, options)
    is_calibrated = any(text.expected_chrf is not None for text in translated)
    answers = [_answer(text, request, is_detected=source == AUTO, is_calibrated=is_calibrated) for text in translated]
    if isinstance(request.q, str):
        return answers[0]
    names = answers[0] if answers else {"translatedText": ""}
    return {name: [answer[name] for answer in answers] for name in names}


async def detect(call: Call) -> list[DetectedLanguage]:
    """Detects the language of a text among those that the server translates."""
    request: DetectRequest = call.body
    _check_length(call, request.q)
    tags = [language.code for language in _languages(call)]
    if not tags:
        raise ServiceError("invalid_request", "this server has no model that translates")
    first, *others = (await call.services.translation.detect([request.q], tags))[0]
    likely = [first, *(other for other in others if other.confidence >= UNLIKELY)]
    return [DetectedLanguage(language=detection.language, confidence=detection.confidence) for detection in likely]


async def languages(call: Call) -> list[Language]:
    """Lists all languages."""
    return _languages(call)


async def frontend_settings(call: Call) -> dict[str, Any]:
    """Returns what a page of LibreTranslate asks for when it is loaded."""
    settings = call.services.settings
    pairs = call.services.translation.languages()
    source = next(iter(pairs), "")
    target = next(iter(pairs.get(source, [])), "")
    has_keys = settings.keys is not None
    suffixes = call.services.documents.suffixes
    return {
        "apiKeys": has_keys,
        "keyRequired": has_keys,
        "charLimit": settings.limits.characters,
        "filesTranslation": bool(suffixes),
        "supportedFilesFormat": suffixes,
        "fileBytes": settings.limits.document_bytes,
        "frontendTimeout": FRONTEND_TIMEOUT,
        "suggestions": False,
        "language": {"source": _language_entry(source), "target": _language_entry(target)},
    }


async def suggest(call: Call) -> None:
    """Refuses suggestions.

    Raises:
        ServiceError: Always.
    """
    raise ServiceError("not_implemented", "suggestions of better translations are not supported")


def _answer(
    translated: TranslatedText, request: TranslateRequest, *, is_detected: bool, is_calibrated: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": translated.text}
    if is_detected:
        language = DetectedLanguage(language=translated.source, confidence=translated.confidence)
        answer["detectedLanguage"] = language
    if is_calibrated:
        answer["confidence"] = translated.expected_chrf
    if request.alternatives:
        answer["alternatives"] = list(translated.alternatives)
    if request.details:
        answer["details"] = details(translated)
    return answer


def _languages(call: Call) -> list[Language]:
    """Returns the source languages and then those that are only translated to."""
    pairs = call.services.translation.languages()
    tags = dict.fromkeys([*pairs, *(target for targets in pairs.values() for target in targets)])
    return [Language(code=tag, name=language_name(tag), targets=pairs.get(tag, [])) for tag in tags]


def _language_entry(tag: str) -> dict[str, str]:
    return {"code": tag, "name": language_name(tag) if tag else ""}


def _check_length(call: Call, text: str) -> None:
    most = call.services.settings.limits.characters
    if len(text) > most:
        raise ServiceError("too_large", f"q: {len(text):,} characters are more than the limit of {most:,}", param="q")


def _operation(method: Any, path: str, summary: str, handler: Any, **rest: Any) -> Operation:
    return Operation(method, path, summary, handler, error_form, interface=INTERFACE, **rest)


ENCODINGS: Final = ("json", "form", "multipart", "query")
OPERATIONS: Final[Sequence[Operation]] = (
    _operation(
        "POST", "/translate", "Translates texts", translate_texts,
        request=TranslateRequest, response=TranslateResponse, accepts=ENCODINGS,
    ),
    _operation(
        "POST", "/detect", "Detects the language of a text", detect,
        request=DetectRequest, response=list[DetectedLanguage], accepts=ENCODINGS,
    ),
    _operation("GET", "/languages", "Languages", languages, response=list[Language], is_open=True),
    _operation(
        "GET", "/frontend/settings", "Settings for a page", frontend_settings, response=dict[str, Any], is_open=True
    ),
    *file_operations(error_form, INTERFACE),
    _operation("POST", "/suggest", "Refused: suggestions are not supported", suggest, errors=(501,)),
)  # fmt: skip
