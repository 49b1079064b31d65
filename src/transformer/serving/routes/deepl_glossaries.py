"""Stored glossaries of DeepL: those of version 2 with one pair of languages, and of version 3 with several."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, Field
from starlette.responses import Response

from transformer.serving.errors import ServiceError
from transformer.serving.glossaries import Dictionary, EntriesFormat, Glossary, make_dictionary, write_entries
from transformer.serving.operations import Call, Operation
from transformer.text.languages import base_language

INTERFACE: Final = "DeepL"
TSV: Final = "text/tab-separated-values"


class DictionaryRequest(BaseModel):
    """Terms of a pair of languages.

    Attributes:
        source_lang: Language of source terms.
        target_lang: Language of target terms.
        entries: One pair of terms a line.
        entries_format: "tsv" or "csv".
    """

    source_lang: str
    target_lang: str
    entries: str
    entries_format: EntriesFormat = "tsv"


class GlossaryRequest(DictionaryRequest):
    """A glossary with one pair of languages."""

    name: str


class MultilingualRequest(BaseModel):
    """A glossary with several pairs of languages."""

    name: str
    dictionaries: list[DictionaryRequest]


class ChangeRequest(BaseModel):
    """A new name of a glossary, or terms to add to it."""

    name: str | None = None
    dictionaries: list[DictionaryRequest] = Field(default_factory=list[DictionaryRequest])


class PairRequest(BaseModel):
    """A pair of languages."""

    source_lang: str
    target_lang: str


def error_form(error: ServiceError) -> dict[str, Any]:
    """Returns the body of an error."""
    return {"message": error.message}


def deepl_code(tag: str) -> str:
    """Returns the code of a source language, which has no region, e.g. `PT` for `pt-BR`."""
    return base_language(tag).upper()


async def language_pairs(call: Call) -> dict[str, Any]:
    """Lists the pairs of languages that glossaries may have."""
    pairs = call.services.translation.languages()
    tags = ((source, target) for source, targets in pairs.items() for target in targets)
    codes = dict.fromkeys((base_language(source), base_language(target)) for source, target in tags)
    return {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in codes]}


async def create(call: Call) -> dict[str, Any]:
    """Stores a glossary with one pair of languages."""
    request: GlossaryRequest = call.body
    glossary = Glossary(request.name, (_dictionary(request),))
    await call.services.glossaries.put(call.owner, glossary)
    return _describe(glossary)


async def list_all(call: Call) -> dict[str, Any]:
    """Lists the glossaries with one pair of languages."""
    owned = call.services.glossaries.owned(call.owner)
    return {"glossaries": [_describe(glossary) for glossary in owned if len(glossary.dictionaries) == 1]}


async def get(call: Call) -> dict[str, Any]:
    """Returns the facts of a glossary."""
    return _describe(_single(call))


async def entries(call: Call) -> Response:
    """Returns the terms of a glossary."""
    return Response(write_entries(_single(call).dictionaries[0].terms), media_type=f"{TSV}; charset=utf-8")


async def delete(call: Call) -> Response:
    """Deletes a glossary."""
    await call.services.glossaries.delete(call.owner, _identifier(call))
    return Response(status_code=204)


async def create_multilingual(call: Call) -> dict[str, Any]:
    """Stores a glossary with several pairs of languages."""
    request: MultilingualRequest = call.body
    if not request.dictionaries:
        raise ServiceError("invalid_request", "dictionaries: there must be at least one", param="dictionaries")
    glossary = Glossary(request.name, tuple(map(_dictionary, request.dictionaries)))
    await call.services.glossaries.put(call.owner, glossary)
    return _describe_multilingual(glossary)


async def list_multilingual(call: Call) -> dict[str, Any]:
    """Lists all glossaries."""
    owned = call.services.glossaries.owned(call.owner)
    return {"glossaries": [_describe_multilingual(glossary) for glossary in owned]}


async def get_multilingual(call: Call) -> dict[str, Any]:
    """Returns the facts of a glossary."""
    return _describe_multilingual(_stored(call))


async def change(call: Call) -> dict[str, Any]:
    """Renames a glossary, or adds terms to it."""
    request: ChangeRequest = call.body
    glossary = _stored(call)
    name = glossary.name if request.name is None else request.name
    changed = Glossary(name, glossary.dictionaries, glossary.id, glossary.created)
    for dictionary in map(_dictionary, request.dictionaries):
        changed = changed.merging(dictionary)
    await call.services.glossaries.put(call.owner, changed)
    return _describe_multilingual(changed)


async def replace_dictionary(call: Call) -> dict[str, Any]:
    """Replaces the terms of a pair of languages."""
    dictionary = _dictionary(call.body)
    await call.services.glossaries.put(call.owner, _stored(call).replacing(dictionary))
    return _describe_dictionary(dictionary)


async def multilingual_entries(call: Call) -> dict[str, Any]:
    """Returns the terms of a pair of languages."""
    request: PairRequest = call.body
    dictionary = _stored(call).dictionary(request.source_lang, request.target_lang)
    terms = {"entries": write_entries(dictionary.terms), "entries_format": "tsv"}
    return {"dictionaries": [{"source_lang": dictionary.source, "target_lang": dictionary.target, **terms}]}


async def delete_dictionary(call: Call) -> Response:
    """Deletes the terms of a pair of languages."""
    request: PairRequest = call.body
    glossary = _stored(call)
    dictionary = glossary.dictionary(request.source_lang, request.target_lang)
    await call.services.glossaries.put(call.owner, glossary.without(dictionary))
    return Response(status_code=204)


def _dictionary(request: DictionaryRequest) -> Dictionary:
    return make_dictionary(request.source_lang, request.target_lang, request.entries, request.entries_format)


def _identifier(call: Call) -> str:
    return call.request.path_params["glossary_id"]


def _stored(call: Call) -> Glossary:
    return call.services.glossaries.get(call.owner, _identifier(call))


def _single(call: Call) -> Glossary:
    """Returns a glossary that version 2 can show."""
    glossary = _stored(call)
    if len(glossary.dictionaries) != 1:
        raise ServiceError("not_found", "the glossary does not have one pair of languages; use /v3/glossaries")
    return glossary


def _describe_dictionary(dictionary: Dictionary) -> dict[str, Any]:
    languages = {"source_lang": dictionary.source, "target_lang": dictionary.target}
    return {**languages, "entry_count": len(dictionary.terms)}


def _describe(glossary: Glossary) -> dict[str, Any]:
    common = {"glossary_id": glossary.id, "name": glossary.name, "ready": True, "creation_time": glossary.created}
    return {**common, **_describe_dictionary(glossary.dictionaries[0])}


def _describe_multilingual(glossary: Glossary) -> dict[str, Any]:
    dictionaries = [_describe_dictionary(dictionary) for dictionary in glossary.dictionaries]
    common = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": glossary.created}
    return {**common, "dictionaries": dictionaries}


def _operation(method: Any, path: str, summary: str, handler: Any, **rest: Any) -> Operation:
    return Operation(method, path, summary, handler, error_form, interface=INTERFACE, **rest)


ONE: Final = "/{glossary_id}"
BODY: Final[Any] = ("json", "form")
GLOSSARY_OPERATIONS: Final[Sequence[Operation]] = (
    _operation(
        "GET", "/v2/glossary-language-pairs", "Pairs of languages of glossaries", language_pairs,
        response=dict[str, Any],
    ),
    _operation(
        "POST", "/v2/glossaries", "Stores a glossary", create,
        request=GlossaryRequest, response=dict[str, Any], accepts=BODY, success=201,
    ),
    _operation("GET", "/v2/glossaries", "Lists glossaries", list_all, response=dict[str, Any]),
    _operation("GET", f"/v2/glossaries{ONE}", "Facts of a glossary", get, response=dict[str, Any], errors=(404,)),
    _operation(
        "GET", f"/v2/glossaries{ONE}/entries", "Terms of a glossary", entries, media_type=TSV, errors=(404,)
    ),
    _operation("DELETE", f"/v2/glossaries{ONE}", "Deletes a glossary", delete, success=204, errors=(404,)),
    _operation(
        "POST", "/v3/glossaries", "Stores a glossary of several pairs", create_multilingual,
        request=MultilingualRequest, response=dict[str, Any], success=201,
    ),
    _operation("GET", "/v3/glossaries", "Lists all glossaries", list_multilingual, response=dict[str, Any]),
    _operation(
        "GET", f"/v3/glossaries{ONE}", "Facts of a glossary", get_multilingual, response=dict[str, Any], errors=(404,)
    ),
    _operation(
        "PATCH", f"/v3/glossaries{ONE}", "Renames a glossary, or adds terms", change,
        request=ChangeRequest, response=dict[str, Any], errors=(404,),
    ),
    _operation("DELETE", f"/v3/glossaries{ONE}", "Deletes a glossary", delete, success=204, errors=(404,)),
    _operation(
        "GET", f"/v3/glossaries{ONE}/entries", "Terms of a pair", multilingual_entries,
        request=PairRequest, response=dict[str, Any], accepts=("query",), errors=(404,),
    ),
    _operation(
        "PUT", f"/v3/glossaries{ONE}/dictionaries", "Replaces the terms of a pair", replace_dictionary,
        request=DictionaryRequest, response=dict[str, Any], errors=(404,),
    ),
    _operation(
        "DELETE", f"/v3/glossaries{ONE}/dictionaries", "Deletes the terms of a pair", delete_dictionary,
        request=PairRequest, accepts=("query",), success=204, errors=(404,),
    ),
)  # fmt: skip
