"""Glossaries that clients store, in memory or as files of a folder."""

import asyncio
import csv
import hashlib
import json
import logging
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

from transformer.config import describe_error
from transformer.errors import ConfigError, OutputError
from transformer.serving.errors import ServiceError
from transformer.serving.settings import ServerSettings
from transformer.storage.atomic import named_errors, replace_text
from transformer.text.languages import base_language

LOGGER: Final = logging.getLogger("transformer.serving")
Terms = tuple[tuple[str, str], ...]
"""Pairs of source and target term."""
EntriesFormat = Literal["tsv", "csv"]
MAX_NAME: Final = 1024
"""Maximum number of characters of a glossary's name."""
MAX_TERM: Final = 1024
"""Maximum number of characters of a term."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Dictionary:
    """Terms of one pair of languages.

    Attributes:
        source: Language of the source terms, without region.
        target: Language of the target terms, without region.
        terms: Pairs of source and target term.
    """

    source: str
    target: str
    terms: Terms


@dataclass(frozen=True)
class Glossary:
    """A stored glossary.

    Attributes:
        name: Name that its owner gave it.
        dictionaries: Terms by pair of languages.
        id: Identifier, a random UUID.
        created: Time of its creation in ISO 8601 with microseconds.
    """

    name: str
    dictionaries: tuple[Dictionary, ...]
    id: str = field(default_factory=lambda: str(uuid4()))
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))

    def dictionary(self, source: str, target: str) -> Dictionary:
        """Returns the terms of a pair of languages, whose regions make no difference.

        Raises:
            ServiceError: There are none.
        """
        pair = base_language(source), base_language(target)
        for dictionary in self.dictionaries:
            if (dictionary.source, dictionary.target) == pair:
                return dictionary
        raise ServiceError("not_found", f"the glossary has no terms from {pair[0]} to {pair[1]}", param="glossary_id")

    def without(self, dictionary: Dictionary) -> "Glossary":
        """Returns the glossary without the terms of a pair of languages."""
        pair = dictionary.source, dictionary.target
        others = tuple(other for other in self.dictionaries if (other.source, other.target) != pair)
        return replace(self, dictionaries=others)

    def replacing(self, dictionary: Dictionary) -> "Glossary":
        """Returns the glossary with other terms for a pair of languages, or with a further pair."""
        others = self.without(dictionary).dictionaries
        return replace(self, dictionaries=(*others, dictionary))

    def merging(self, dictionary: Dictionary) -> "Glossary":
        """Returns the glossary with terms added to those of their pair of languages; equal source terms change."""
        pair = dictionary.source, dictionary.target
        known = [term for other in self.dictionaries if (other.source, other.target) == pair for term in other.terms]
        terms = tuple({**dict(known), **dict(dictionary.terms)}.items())
        return self.replacing(replace(dictionary, terms=terms))


class Glossaries:
    """Stores the glossaries of each owner. Names of files are made from hashes and UUIDs alone.

    Args:
        settings: Settings of the server: folder and limits.

    Raises:
        ConfigError: The folder cannot be written, or a file in it is damaged.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._limits, self._folder = settings.limits, settings.glossaries
        self._by_owner: defaultdict[str, dict[str, Glossary]] = defaultdict(dict)
        self._writing = asyncio.Lock()
        if self._folder is not None:
            _check_folder(self._folder)
        for path in sorted(self._folder.glob("*/*.json")) if self._folder else ():
            glossary = _read(path)
            self._by_owner[path.parent.name][glossary.id] = glossary

    def owned(self, owner: str) -> list[Glossary]:
        """Returns the glossaries of an owner, oldest first."""
        return sorted(self._of(owner).values(), key=lambda glossary: glossary.created)

    def get(self, owner: str, identifier: str) -> Glossary:
        """Returns a glossary.

        Raises:
            ServiceError: The owner has none of this identifier.
        """
        glossary = self._of(owner).get(identifier)
        if glossary is None:
            raise ServiceError("not_found", "no glossary has this identifier", param="glossary_id")
        return glossary

    async def put(self, owner: str, glossary: Glossary) -> None:
        """Stores a new or changed glossary.

        Raises:
            ServiceError: A limit is exceeded, the name or a pair of languages is wrong, or the file cannot be written.
        """
        self._check(glossary)
        async with self._writing:
            stored = self._of(owner)
            if glossary.id not in stored and len(stored) >= self._limits.glossaries:
                message = f"more than {self._limits.glossaries} stored glossaries; delete one first"
                raise ServiceError("invalid_request", message)
            if path := self._path(owner, glossary.id):
                try:
                    await asyncio.to_thread(_write, path, glossary)
                except OutputError as error:
                    raise _storage_error("stored", error) from error
            self._by_owner[_folder_name(owner)][glossary.id] = glossary

    async def delete(self, owner: str, identifier: str) -> None:
        """Deletes a glossary.

        Raises:
            ServiceError: The owner has none of this identifier, or the file cannot be deleted.
        """
        async with self._writing:
            self.get(owner, identifier)
            if path := self._path(owner, identifier):
                try:
                    with named_errors(path):
                        path.unlink(missing_ok=True)
                except OutputError as error:
                    raise _storage_error("deleted", error) from error
            del self._by_owner[_folder_name(owner)][identifier]

    def _of(self, owner: str) -> dict[str, Glossary]:
        return self._by_owner.get(_folder_name(owner), {})

    def _path(self, owner: str, identifier: str) -> Path | None:
        return self._folder / _folder_name(owner) / f"{identifier}.json" if self._folder else None

    def _check(self, glossary: Glossary) -> None:
        if not 0 < len(glossary.name.strip()) <= MAX_NAME:
            raise ServiceError("invalid_request", f"the name must have 1 to {MAX_NAME} characters", param="name")
        n_terms = sum(len(dictionary.terms) for dictionary in glossary.dictionaries)
        if n_terms > self._limits.glossary_terms:
            message = f"{n_terms:,} terms are more than the limit of {self._limits.glossary_terms:,}"
            raise ServiceError("invalid_request", message, param="entries")
        pairs = [(dictionary.source, dictionary.target) for dictionary in glossary.dictionaries]
        if len(set(pairs)) < len(pairs):
            raise ServiceError("invalid_request", "a pair of languages occurs twice", param="dictionaries")


def make_dictionary(source: str, target: str, entries: str, form: EntriesFormat) -> Dictionary:
    """Returns the terms of a text.

    Args:
        source: Tag of the language of source terms.
        target: Tag of the language of target terms.
        entries: One pair of terms a line. Further columns of "csv", which name languages, make no difference.
        form: "tsv" or "csv".

    Raises:
        ServiceError: A tag or a line is wrong, a term occurs twice, or there is none.
    """
    tags = [base_language(tag) for tag in (source, target)]
    if not all(tags) or tags[0] == tags[1]:
        raise ServiceError("invalid_request", "source_lang and target_lang must be two languages", param="source_lang")
    terms: dict[str, str] = {}
    for number, row in _rows(entries, form):
        fields = [cell.strip() for cell in row[:2]]
        if len(fields) < 2 or not all(0 < len(term) <= MAX_TERM and not _CONTROL.search(term) for term in fields):
            message = f"entries, line {number}: expected a source and a target term of 1 to {MAX_TERM} characters"
            raise ServiceError("invalid_request", message, param="entries")
        if fields[0] in terms:
            raise ServiceError(
                "invalid_request", f"entries, line {number}: the source term occurs twice", param="entries"
            )
        terms[fields[0]] = fields[1]
    if not terms:
        raise ServiceError("invalid_request", "entries: no terms found", param="entries")
    return Dictionary(tags[0], tags[1], tuple(terms.items()))


def write_entries(terms: Terms) -> str:
    """Returns terms as tab-separated values."""
    return "\n".join(f"{source}\t{target}" for source, target in terms)


def _rows(entries: str, form: EntriesFormat) -> list[tuple[int, Sequence[str]]]:
    """Returns the fields of each line that is not empty."""
    lines = re.split(r"\r\n|\r|\n", entries.removeprefix("\ufeff"))
    if form == "tsv":
        rows: list[Sequence[str]] = [line.split("\t") if line.strip() else [] for line in lines]
    else:
        try:
            rows = list(csv.reader(lines))
        except csv.Error as error:
            raise ServiceError("invalid_request", f"entries: {error}", param="entries") from None
    return [(number, row) for number, row in enumerate(rows, start=1) if row]


def _folder_name(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def _check_folder(folder: Path) -> None:
    """Creates the folder of glossaries, and refuses one that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        message = (
            f"glossaries={str(folder)!r} cannot be written ({error.strerror}); choose one that the server may write"
        )
        raise ConfigError(message) from error


def _read(path: Path) -> Glossary:
    try:
        return _parse_glossary(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        message = f"{path} is not a stored glossary ({describe_error(error)}); restore it, or move it out of the folder"
        raise ConfigError(message) from error


def _write(path: Path, glossary: Glossary) -> None:
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(asdict(glossary), indent=1))


def _storage_error(action: str, error: OutputError) -> ServiceError:
    """Logs why a file cannot be changed, and returns the error for the client, who need not know the path."""
    LOGGER.error("a glossary cannot be %s: %s", action, error)
    message = f"the glossary cannot be {action} ({error.reason}); ask the operator of this server"
    return ServiceError("internal", message)


def _parse_glossary(stored: dict[str, Any]) -> Glossary:
    dictionaries = tuple(
        Dictionary(entry["source"], entry["target"], tuple((source, target) for source, target in entry["terms"]))
        for entry in stored["dictionaries"]
    )
    return Glossary(stored["name"], dictionaries, stored["id"], stored["created"])
