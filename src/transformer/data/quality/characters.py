"""Detection of suspicious characters in a line, with one pattern per kind of error."""

import re
from collections.abc import Iterator
from typing import Final

_CP1252: Final = "".join(
    chr(b) if b in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([b]).decode("cp1252") for b in range(128, 192)
)
_AFTER = f"[\x80-\xbf{re.escape(_CP1252)}]"
_TAGS = "a|b|i|u|p|br|hr|div|span|em|strong|font|img|ul|ol|li|table|tr|td|th|sub|sup|script|style|h[1-6]"
_CONTROL_NAMES = "pad|s|bos|sos|eos|unk|mask|cls|sep"

PATTERNS: Final = {
    "nul": re.compile("\0"),
    "line-break": re.compile("[\x0b\x0c\r\x85\u2028\u2029]"),
    "control-character": re.compile(
        "[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\ufeff]"
    ),
    "replacement": re.compile("\ufffd"),
    # UTF-8 read as Latin-1 or Windows-1252: the lead byte of a two-byte letter, or of a dash or quotation mark.
    "mojibake": re.compile(f"Ã{_AFTER}|Â[\xa0-\xbf]|â€{_AFTER}|(?:[ÐÑ]{_AFTER}){{2}}"),
    "html": re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>|&(?:\w{{2,8}}|#\d{{1,7}}|#x[0-9a-f]{{1,6}});", re.IGNORECASE),
    "control-token": re.compile(rf"</?(?:{_CONTROL_NAMES})>|\[(?:{_CONTROL_NAMES})\]|<\|\w+\|>|▁", re.IGNORECASE),
}
_SUSPECT = re.compile("[^\x20-\x7e\xa1-\xac\xae-\xc1\xc4-\xcf\xd2-\xe1\xe3-\u024f]|[<&\\[ÃÂâÐÑ]")


def find_suspicious_characters(line: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and the position of suspicious characters in a line: `U+2028 at character 17`."""
    if not _SUSPECT.search(line):  # fast path: one pattern rejects nearly all lines
        return
    for kind, pattern in PATTERNS.items():
        if match := pattern.search(line):
            yield kind, f"{_printable(match.group())} at character {match.start() + 1}"


def _printable(text: str) -> str:
    return (
        text if text.isprintable() and text != "\ufffd" else " ".join(f"U+{ord(character):04X}" for character in text)
    )
