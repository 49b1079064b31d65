"""The demonstration corpus: English and German sentences from a grammar."""

from transformer.data.phrasebook.corpus import Phrasebook, build_phrasebook, nearest_neighbour, reserved_pairs

__all__ = ["Phrasebook", "build_phrasebook", "nearest_neighbour", "reserved_pairs"]
