"""Stop sequences (stop strings): texts that end a continuation, found while it is generated."""

from collections.abc import Sequence


class StopSequences:
    """Truncates a text that arrives in pieces at its first stop sequence.

    Of several stop sequences in a text, the one that ends first counts, however the text is divided into pieces.

    Args:
        stops: Stop sequences, none of them empty.

    Attributes:
        found: Whether a stop sequence has occurred.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found = False
        self._stops, self._held = tuple(stops), ""

    def add(self, piece: str) -> str:
        """Returns the text that is known to precede any stop sequence; the rest is held back."""
        text, self._held = self._held + piece, ""
        ends = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if ends:
            self.found = True
            return text[: min(ends)[1]]
        n_shown = len(text) - self._partial_stop_length(text)
        self._held = text[n_shown:]
        return text[:n_shown]

    def rest(self) -> str:
        """Returns the text that was held back, after the last piece."""
        rest, self._held = self._held, ""
        return rest

    def _partial_stop_length(self, text: str) -> int:
        """Returns the length of the longest suffix of a text that is a prefix of a stop sequence."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        return next((size for size in sizes if any(stop.startswith(text[-size:]) for stop in self._stops)), 0)


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Returns a text up to its first stop sequence, and whether there is one."""
    cutter = StopSequences(stops)
    shown = cutter.add(text)
    return shown + cutter.rest(), cutter.found
