"""Writes the corpus that the package ships: `PYTHONPATH=tools python -m phrasebook`."""

import lzma

from phrasebook.generate import build_phrasebook
from transformer.demo.corpus import PHRASEBOOK

with lzma.open(PHRASEBOOK, "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8", newline="\n") as lines:
    for name, pairs in vars(build_phrasebook()).items():
        lines.writelines(f"{name}\t{english}\t{german}\n" for english, german in pairs)
print(f"wrote {PHRASEBOOK}")
