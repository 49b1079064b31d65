"""Translations that are scored although they are not plain lines, or not those of the reference."""

import json
import unicodedata

import pytest

from transformer.evaluation.comparison import EvaluationSet, System, evaluate
from transformer.evaluation.line_formats import format_notes

REFERENCE = [f"Der Hund {n} läuft schnell nach Hause {n + 1}, dann schläft er {n + 2}." for n in range(0, 120, 3)]
TOKENIZED = [line.replace(",", " ,").replace(".", " .") for line in REFERENCE]
CASES = {
    "n-best list": [f"{n} ||| {line} ||| -1.0" for n, line in enumerate(REFERENCE)],
    "JSON": [json.dumps({"translation": line}) for line in REFERENCE],
    "subword pieces": [line.replace("schnell", "schn@@ ell") for line in REFERENCE],
    "is tokenized": TOKENIZED,
    "another order": REFERENCE[1:] + REFERENCE[:1],
    "Unicode NFD, the reference in NFC": [unicodedata.normalize("NFD", line) for line in REFERENCE],
}


@pytest.mark.parametrize("message", CASES)
def test_what_is_not_a_plain_translation_is_told(message: str) -> None:
    """Catches a low score of a file in another format, without a word."""
    (note,) = format_notes("hyp", CASES[message], REFERENCE)
    assert message in note
    assert note in evaluate([System("hyp", CASES[message])], EvaluationSet(None, [REFERENCE]), samples=0).notes


def test_plain_translations_are_not_doubted() -> None:
    """Catches notes on good, bad and empty translations, on quoted JSON, and on what the reference has too."""
    bad = [f"Der Hund {n % 5}." for n in range(len(REFERENCE))]
    quoted = [line if n % 3 else json.dumps(line) for n, line in enumerate(REFERENCE)]
    for lines in (REFERENCE, bad, quoted, [""] * len(REFERENCE), [line.upper() for line in REFERENCE]):
        assert not [*format_notes("hyp", lines, REFERENCE)]
    assert not [*format_notes("hyp", TOKENIZED, TOKENIZED)]
    (note,) = format_notes("hyp", REFERENCE, TOKENIZED)
    assert "the reference is tokenized" in note
    assert not [*format_notes("hyp", REFERENCE[3::-1], REFERENCE[:4])], "too few lines"
