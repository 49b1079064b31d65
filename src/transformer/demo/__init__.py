"""The demo: an English-German phrasebook and a nearest-neighbour baseline."""

from transformer.demo.baseline import nearest_neighbour
from transformer.demo.corpus import Phrasebook, load_phrasebook

__all__ = ["Phrasebook", "load_phrasebook", "nearest_neighbour"]
