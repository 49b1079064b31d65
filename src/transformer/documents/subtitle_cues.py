"""Cues of subtitle files (SRT and WebVTT): their lines, and which of them hold one sentence together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from transformer.documents.text_file import TextFile

MAX_CUES: Final = 6
"""Maximum number of cues that are translated together."""
MAX_PAUSE: Final = 2.0
"""Seconds between two cues above which a sentence does not continue."""
_TIME: Final = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING: Final = regex.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}(?=\s|\Z)")
_SENTENCE_END: Final = regex.compile(r"[.!?…。！？♪♫:;\])\"”»]['’”\"»)\]]*\s*\Z")
_CONTINUED: Final = regex.compile(r"(?:\.\.\.|…)?\s*\p{Ll}")
_DIALOGUE: Final = regex.compile(r"[-–—‐]\s?\S")


@dataclass(frozen=True)
class Cue:
    """A cue: text that is shown for some time.

    Attributes:
        start: Position of its first line, which may be its number.
        lines: Start and end of each line of its text, without white space at its ends and line ends.
        times: Seconds of its beginning and its end.
    """

    start: int
    lines: Sequence[tuple[int, int]]
    times: tuple[float, float]

    def texts(self, file: TextFile) -> list[str]:
        """Returns its lines, as written."""
        return [file.text[start:end] for start, end in self.lines]

    def is_dialogue(self, file: TextFile) -> bool:
        """Whether a line begins with a dash."""
        return any(map(_DIALOGUE.match, self.texts(file)))


def find_cues(file: TextFile) -> Iterator[Cue]:
    """Yields the cues of a file that have text."""
    position, block, times = 0, 0, None
    lines: list[tuple[int, int]] = []
    for line in [*file.text.split("\n"), ""]:
        stripped = line.strip()
        if not stripped:
            if times and lines:
                yield Cue(block, lines, times)
            block, times, lines = position + len(line) + 1, None, []
        elif timing := _TIMING.match(line):
            number = lines.pop() if lines and file.text[slice(*lines[-1])].isdecimal() else (position, position)
            if times and lines:  # the cue before lacks the empty line behind it
                yield Cue(block, lines, times)
            if times:
                block, lines = number[0], []
            times = _seconds(timing.groups()[:4]), _seconds(timing.groups()[4:])
        elif times is not None:
            start = position + len(line) - len(line.lstrip())
            lines.append((start, start + len(stripped)))
        position += len(line) + 1


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")


def group_cues(file: TextFile, cues: Sequence[Cue]) -> list[list[Cue]]:
    """Groups the cues over which a sentence extends; cues with tags or dashes stand alone."""
    groups: list[list[Cue]] = []
    for cue in cues:
        if groups and len(groups[-1]) < MAX_CUES and _continues(file, groups[-1][-1], cue):
            groups[-1].append(cue)
        else:
            groups.append([cue])
    return groups


def _continues(file: TextFile, before: Cue, cue: Cue) -> bool:
    texts = " ".join(before.texts(file)), " ".join(cue.texts(file))
    if any("<" in text or "{" in text for text in texts) or any(part.is_dialogue(file) for part in (before, cue)):
        return False
    if not -MAX_PAUSE <= cue.times[0] - before.times[1] <= MAX_PAUSE:
        return False
    ends = _SENTENCE_END.search(texts[0])
    return _CONTINUED.match(texts[1]) is not None if ends and ends[0].strip() in ("...", "…") else not ends
