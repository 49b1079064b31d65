"""Fields that requests of DeepL for texts and for documents have in common."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call
from transformer.serving.routes.translate_fields import TranslateFields
from transformer.serving.translation import TranslateOptions

FORMALITIES: Final = ("default", "prefer_more", "prefer_less")
"""Values of `formality` that a model without formality can follow."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _split_names(names: list[str]) -> list[str]:
    return [name.strip() for part in names for name in part.split(",") if name.strip()]


Texts = Annotated[list[str], BeforeValidator(_as_list)]
Names = Annotated[list[str], BeforeValidator(_as_list), AfterValidator(_split_names)]


class SharedFields(TranslateFields):
    """Languages and options of a translation.

    Attributes:
        target_lang: Language to translate to, e.g. `DE`, `EN-GB` or `PT-BR`.
        source_lang: Language to translate from; it is detected by default.
        glossary_id: Identifier of a stored glossary; it needs `source_lang`.
        formality: Other values than "default" and "prefer_..." are refused.
        model_type: With "latency_optimized", the beam size is 1.
    """

    target_lang: str
    source_lang: str | None = None
    glossary_id: str | None = None
    formality: str | None = None
    model_type: Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"] | None = None
    glossary_ids: Names | None = None
    style_id: str | None = None
    translation_memory_id: str | None = None
    custom_instructions: list[str] | None = None


def options_of(call: Call, request: SharedFields) -> TranslateOptions:
    """Returns the options of a translation.

    Raises:
        ServiceError: What would change the translation is not supported, or the glossary does not exist.
    """
    if request.formality and request.formality not in FORMALITIES:
        message = f"formality: {request.formality[:20]!r} is not supported; use one of {', '.join(FORMALITIES)}"
        raise ServiceError("invalid_request", message, param="formality")
    for name in ("glossary_ids", "style_id", "translation_memory_id", "custom_instructions"):
        if getattr(request, name):
            raise ServiceError("invalid_request", f"{name} is not supported; leave it out", param=name)
    beam = 1 if request.model_type == "latency_optimized" else None
    return TranslateOptions(beam=beam, glossary=_stored_terms(call, request))


def _stored_terms(call: Call, request: SharedFields) -> tuple[tuple[str, str], ...]:
    if not request.glossary_id:
        return ()
    if not request.source_lang:
        raise ServiceError("invalid_request", "glossary_id needs source_lang", param="source_lang")
    glossary = call.services.glossaries.get(call.owner, request.glossary_id)
    return glossary.dictionary(request.source_lang, request.target_lang).terms
