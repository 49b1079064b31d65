"""Writes the corpus that the package ships: `PYTHONPATH=tools python -m phrasebook`."""

from phrasebook.generate import build_phrasebook
from transformer.demo.corpus import PHRASEBOOK, save_phrasebook

save_phrasebook(build_phrasebook(), PHRASEBOOK)
print(f"wrote {PHRASEBOOK}")
