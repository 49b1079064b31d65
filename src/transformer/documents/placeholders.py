"""Placeholders of programs' messages, by the formats that gettext names (manual of GNU gettext)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from transformer.documents.codes import Code

_PRINTF: Final = regex.compile(
    r"%(?:%|(?P<number>\d+\$)?(?P<name>\([^()\n]*\))?[-+ #0'I]*(?P<star>\*|\d+)?(?:\.(?:\*|\d+)?)?"
    r"(?:hh|h|ll|l|q|j|z|t|L)?(?P<type>[diouxXeEfFgGaAcsrCSpnm@]|<PRI\w+>))"
)
"""Directives of printf in C, Objective-C, PHP, Perl and Python, and `%%`."""
_BRACES: Final = regex.compile(r"\{\{|\}\}|\{[^{}\n]*+(?:\{[^{}\n]*+\}[^{}\n]*+)*+\}")
"""Replacement fields of `str.format` in Python, and the escapes of braces."""
_QT: Final = regex.compile(r"%L?(?:[1-9]\d?|n)")
_NAMED: Final = regex.compile(r"%\w++%|\$\{[^{}\n]*+\}|\{\{[^{}\n]*+\}\}|\{[\w.:,! -]++\}")
_COUNT_NAMES: Final = regex.compile(r"\{(?:n|i|num\w*|count\w*|total)\}")
Parts = list[str | Code]


def printf_parts(text: str) -> Parts:
    """Returns a text with the directives of printf as codes; `%%` becomes a percent sign."""

    def part(match: "regex.Match[str]") -> str | Code:
        is_count = match["type"] in tuple("diouxXeEfFgG") or (match["type"] or "").startswith("<")
        return "%" if match[0] == "%%" else Code(match[0], "count" if is_count else "value")

    return _parts(text, _PRINTF, part)


def brace_parts(text: str) -> Parts:
    """Returns a text with the replacement fields of `str.format` as codes; double braces become single ones."""

    def part(match: "regex.Match[str]") -> str | Code:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        return Code(match[0], "count" if _COUNT_NAMES.fullmatch(match[0]) else "value")

    return _parts(text, _BRACES, part)


def qt_parts(text: str) -> Parts:
    """Returns a text with the placeholders of Qt (`%1`, `%n`) as codes."""
    return _parts(text, _QT, lambda match: Code(match[0], "count" if match[0].endswith("n") else "value"))


def named_parts(text: str) -> Parts:
    """Returns a text with placeholders in percent signs or braces as codes, such as those of KDE and shells."""
    return _parts(text, _NAMED, lambda match: Code(match[0], "value"))


def _parts(text: str, pattern: "regex.Pattern[str]", part: "Callable[[regex.Match[str]], str | Code]") -> Parts:
    parts, position = Parts(), 0
    for match in pattern.finditer(text):
        parts += [text[position : match.start()], part(match)]
        position = match.end()
    return [*parts, text[position:]]


def escape_percent(text: str) -> str:
    """Escapes the percent signs of a text in printf formats."""
    return text.replace("%", "%%")


def escape_braces(text: str) -> str:
    """Escapes the braces of a text for `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class Syntax:
    """Syntax of the placeholders of a format.

    Attributes:
        parts: Function that splits a text at its placeholders.
        escape: Function that escapes the text between placeholders.
        pattern: Pattern of the placeholders and of escapes.
        signs: Characters that occur in placeholders and escapes alone.
    """

    parts: Callable[[str], Parts]
    escape: Callable[[str], str] = str
    pattern: "regex.Pattern[str] | None" = None
    signs: str = ""

    def suits(self, text: str) -> bool:
        """Whether a text is of this format: it has none of the signs elsewhere."""
        if self.pattern is None or not any(map(text.__contains__, self.signs)):
            return True
        return not any(map(self.pattern.sub("", text).__contains__, self.signs))


_PRINTF_SYNTAX: Final = Syntax(printf_parts, escape_percent, _PRINTF, "%")
_BRACE_SYNTAX: Final = Syntax(brace_parts, escape_braces, _BRACES, "{}")
SYNTAXES: Final[dict[str, Syntax]] = {
    **dict.fromkeys(
        (
            "c-format", "objc-format", "python-format", "php-format", "perl-format", "lua-format",
            "gcc-internal-format", "gfc-internal-format", "object-pascal-format", "awk-format",
            "sh-printf-format", "boost-format",
        ),
        _PRINTF_SYNTAX,
    ),
    **dict.fromkeys(("python-brace-format", "c++-format", "rust-format"), _BRACE_SYNTAX),
    **dict.fromkeys(("qt-format", "qt-plural-format", "kde-format"), Syntax(qt_parts)),
    **dict.fromkeys(
        ("java-format", "csharp-format", "javascript-format", "perl-brace-format", "sh-format", "ycp-format"),
        Syntax(named_parts),
    ),
}  # fmt: skip
"""Syntax of the placeholders that each flag of gettext names."""


def syntax_of(flags: Sequence[str], texts: Sequence[str]) -> str:
    """Returns the flag that names the syntax of the placeholders of some texts; empty if none does."""
    return next((flag for flag in flags if flag in SYNTAXES and all(map(SYNTAXES[flag].suits, texts))), "")


POSITIONAL: Final = frozenset({"c-format", "objc-format", "php-format", "sh-printf-format"})
"""Formats whose directives may be numbered (`%2$s`) to be written in another order."""


def numbered(directive: str, number: int) -> str:
    """Returns a directive of printf with a number, e.g. `%2$s`."""
    return f"%{number}${directive[1:]}"


def is_sequential(directive: str) -> bool:
    """Whether the argument of a directive of printf depends on those before it: it has neither number nor name."""
    match = _PRINTF.fullmatch(directive)
    return match is not None and not match["number"] and not match["name"]


def takes_width(directive: str) -> bool:
    """Whether a directive of printf takes its width or precision from an argument of its own."""
    return "*" in directive
