"""The header of a PO file: the language and the plural forms of its translations."""

from dataclasses import dataclass
from typing import Final

import regex

from transformer.documents.plural_forms import PluralForms, parse_plural_forms, plural_forms
from transformer.documents.po_scanner import Entry, Field
from transformer.documents.po_strings import escape
from transformer.documents.text_file import Edit, TextFile

_LANGUAGE: Final = regex.compile(r"(?<=^|\n)Language:[ \t]*+(?P<value>[^\n]*+)")
_PLURALS: Final = regex.compile(r"(?<=^|\n)Plural-Forms:(?P<value>[^\n]*+)")
_RAW_FIELD: Final = r"{name}:(?:[^\\]|\\[^n])*+(?:\\n|(?=\"\s*+\Z))"
_RAW_CHARSET: Final = regex.compile(r"(?<=charset=)CHARSET\b")


@dataclass(frozen=True)
class Header:
    """Contents of the header of a PO file.

    Attributes:
        entry: Entry of the header; None if the file has none.
        language: Language of the translations as written, e.g. `pt_BR`; empty if it is not given.
        forms: Plural forms; None if they are not given, or not valid.
    """

    entry: Entry | None = None
    language: str = ""
    forms: PluralForms | None = None

    @classmethod
    def of(cls, entry: Entry | None) -> "Header":
        """Reads a header."""
        if entry is None:
            return cls()
        text = entry.targets[0].text
        language, plurals = _LANGUAGE.search(text), _PLURALS.search(text)
        return cls(
            entry,
            language["value"].strip() if language else "",
            parse_plural_forms(plurals["value"]) if plurals else None,
        )


def header_edits(
    file: TextFile, header: Header, language: str, *, has_plurals: bool
) -> tuple[PluralForms | None, list[Edit]]:
    """Returns the plural forms of the translations, and the edits that complete the header.

    The language of a file that names one stays as it is written, if translations are to the same language.

    Args:
        file: The file.
        header: Its header.
        language: Language of the translations (BCP 47); empty if not known.
        has_plurals: Whether a message has a plural.
    """
    name = language.replace("-", "_")
    is_same = not name or header.language.partition("_")[0].partition("@")[0] == name.partition("_")[0]
    forms = header.forms if is_same and header.forms else (plural_forms(language) or header.forms)
    if header.entry is None:
        return forms, []
    target = header.entry.targets[0]
    values: dict[str, str] = {}
    if not is_same:
        values["Language"] = name
    if forms is not None and forms != header.forms and (has_plurals or _raw_span(file, target, "Plural-Forms")):
        values["Plural-Forms"] = str(forms)
    edits = _field_edits(file, target, values)
    if charset := _RAW_CHARSET.search(file.text, target.start, target.end):
        edits.append((*charset.span(), "UTF-8"))
    if values and "fuzzy" in header.entry.flags(file):
        edits += [without_fuzzy(file, span) for span in header.entry.comment_lines(file, "#,")]
    return forms, edits


def _raw_span(file: TextFile, target: Field, name: str) -> tuple[int, int] | None:
    """Returns the span of a field of the header, as written, from its name to its line end."""
    pattern = regex.compile(rf'(?<=["n]){_RAW_FIELD.format(name=name)}')
    match = pattern.search(file.text, target.start, target.end)
    return match.span() if match else None


def _field_edits(file: TextFile, target: Field, values: dict[str, str]) -> list[Edit]:
    """Returns the edits that set fields of the header; new ones are added at its end."""
    edits: list[Edit] = []
    added = ""
    for name, value in values.items():
        line = rf"{escape(f'{name}: {value}')}\n"
        if span := _raw_span(file, target, name):
            edits.append((*span, line))
        else:
            added += f'{file.line_end}"{line}"'
    if added:
        is_open = bool(target.text) and not target.text.endswith("\n")
        edits.append((target.end - is_open, target.end, rf'\n"{added}' if is_open else added))
    return edits


def without_fuzzy(file: TextFile, span: tuple[int, int]) -> Edit:
    """Returns the edit that removes the flag `fuzzy` from a line of flags, and the line if no flag is left."""
    start, end = span
    flags = [flag.strip() for flag in file.text[start + 2 : end].split(",")]
    rest = [flag for flag in flags if flag != "fuzzy"]
    return start, end, f"#, {', '.join(rest)}{file.line_end}" if rest else ""
