"""Augmentation of pairs: which pair gets which changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from transformer.data.augment.addresses import addresses
from transformer.data.augment.config import AugmentConfig
from transformer.data.augment.inserts import emoji, placeholders, tags
from transformer.data.augment.letter_case import capitals, lower_case, title_case
from transformer.data.augment.names import names
from transformer.data.augment.numbers import numbers
from transformer.data.augment.pair import Change, Languages, Pair
from transformer.data.augment.punctuation import final_punctuation, spaces
from transformer.data.augment.typos import typos

CHANGES: Final[Mapping[str, Change]] = {
    "capitals": capitals, "title_case": title_case, "lower_case": lower_case, "typos": typos,
    "final_punctuation": final_punctuation, "spaces": spaces, "emoji": emoji, "tags": tags,
    "placeholders": placeholders, "addresses": addresses, "numbers": numbers, "names": names,
}  # fmt: skip
PARAGRAPHS: Final = "paragraphs"
KINDS: Final = (*CHANGES, PARAGRAPHS)
MAX_JOINED: Final = 4
"""Maximum number of pairs of a paragraph."""


@dataclass(frozen=True)
class Augmenter:
    """Makes changed copies of pairs. The number of a pair and the seed alone decide which, and how they look.

    Attributes:
        config: Rates of the kinds of changes.
        seed: Random seed of the run.
        languages: Languages of source and target (BCP 47); empty if not known.
    """

    config: AugmentConfig
    seed: int
    languages: Languages = ("", "")

    def augment(self, pairs: Sequence[tuple[int, Pair]]) -> list[tuple[str, Pair]]:
        """Returns the changed copies of pairs, each with its kind.

        Args:
            pairs: Pairs of the corpus, each with its number, in order.
        """
        rates, copies = self.config.rates, list[tuple[str, Pair]]()
        for row, (number, pair) in enumerate(pairs):
            draws = Random(f"{self.seed} {number}")
            for kind in KINDS:  # all draw, so that no rate changes which pairs others choose
                if draws.random() < rates.get(kind, 0.0):
                    rng = Random(f"{self.seed} {number} {kind}")
                    changed = self._change(kind, pair, rng, [other for _, other in pairs[row : row + MAX_JOINED]])
                    copies += [(kind, changed)] if changed else []
        return copies

    def _change(self, kind: str, pair: Pair, rng: Random, following: Sequence[Pair]) -> Pair | None:
        if kind == PARAGRAPHS:
            joined = following[: rng.randint(2, MAX_JOINED)]
            source, target = (" ".join(texts) for texts in zip(*joined, strict=True))
            return (source, target) if len(joined) > 1 else None
        return CHANGES[kind](pair, rng, self.languages)
