"""Scripts of text, by Unicode ranges."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

CHUNK_CHARACTERS: Final = 1 << 20

# First code point of each range and its script; "" marks ranges without letters of a single script.
RANGES: Final = (
    (0x0, ""), (0x41, "Latin"), (0x5B, ""), (0x61, "Latin"), (0x7B, ""), (0xC0, "Latin"), (0xD7, ""), (0xD8, "Latin"),
    (0xF7, ""), (0xF8, "Latin"), (0x250, ""), (0x370, "Greek"), (0x400, "Cyrillic"), (0x530, "Armenian"),
    (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, ""), (0x750, "Arabic"), (0x780, ""), (0x8A0, "Arabic"),
    (0x900, "Devanagari"), (0x980, "Bengali"), (0xA00, "Gurmukhi"), (0xA80, "Gujarati"), (0xB00, "Odia"),
    (0xB80, "Tamil"), (0xC00, "Telugu"), (0xC80, "Kannada"), (0xD00, "Malayalam"), (0xD80, "Sinhala"),
    (0xE00, "Thai"), (0xE80, "Lao"), (0xF00, "Tibetan"), (0x1000, "Burmese"), (0x10A0, "Georgian"), (0x1100, "Hangul"),
    (0x1200, "Ethiopic"), (0x1380, ""), (0x1780, "Khmer"), (0x1800, "Mongolian"), (0x18B0, ""), (0x1E00, "Latin"),
    (0x1F00, "Greek"), (0x2000, ""), (0x3040, "Kana"), (0x3100, ""), (0x3130, "Hangul"), (0x3190, ""), (0x31F0, "Kana"),
    (0x3200, ""), (0x3400, "Han"), (0x4DC0, ""), (0x4E00, "Han"), (0xA000, ""), (0xA9E0, "Burmese"), (0xAA00, ""),
    (0xAA60, "Burmese"), (0xAA80, ""), (0xAC00, "Hangul"), (0xD7B0, ""),
    (0xF900, "Han"), (0xFB00, ""), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"), (0xFE00, ""), (0xFE70, "Arabic"),
    (0xFEFF, ""), (0xFF66, "Kana"), (0xFFA0, ""), (0x20000, "Han"), (0x40000, ""),
)  # fmt: skip
STARTS: Final = np.array([start for start, _ in RANGES])
SCRIPTS: Final = tuple(sorted({name for _, name in RANGES}))
SCRIPT_OF_RANGE: Final = np.array([SCRIPTS.index(name) for _, name in RANGES])

UNSPACED_SCRIPTS: Final = frozenset({"Han", "Kana", "Thai", "Lao", "Khmer", "Burmese", "Tibetan"})
"""Scripts that are written without spaces between words."""


def script_indices(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index in `SCRIPTS` of the script of each code point."""
    return SCRIPT_OF_RANGE[np.searchsorted(STARTS, codes, "right") - 1]


def count_letters(lines: Iterable[str]) -> Counter[str]:
    """Counts the letters of each script; characters that belong to no single script are not counted."""
    sums = np.zeros(len(SCRIPTS), np.int64)
    chunk: list[str] = []
    n_characters = 0
    for line in lines:
        chunk.append(line)
        n_characters += len(line)
        if n_characters >= CHUNK_CHARACTERS:
            sums += _count("".join(chunk))
            chunk, n_characters = [], 0
    sums += _count("".join(chunk))
    return Counter({name: int(count) for name, count in zip(SCRIPTS, sums, strict=True) if name and count})


def code_points(text: str) -> NDArray[np.int64]:
    """Returns the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


def _count(text: str) -> NDArray[np.int64]:
    return np.bincount(script_indices(code_points(text)), minlength=len(SCRIPTS))
