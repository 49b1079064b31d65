"""Differences between the two sides of a pair, and lines that look right and are not."""

from pathlib import Path

import pytest

from samples import write_lines
from transformer.data.quality.examination import examine
from transformer.data.quality.kept_spans import mixed_word, pair_differences


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("He paid 9.99 euros.", "Er hat 9,99 Euro bezahlt.", {}),
        ("He paid 9.99 euros.", "Er hat 999 Euro bezahlt.",
         {"numbers": "9.99 in the source, 999 in the target"}),
        ("Open %s in {app}", "{app}: %s öffnen", {}),
        ("Open %s in {app}", "%d in {App} öffnen",
         {"placeholders": "%s, {app} in the source, %d, {App} in the target"}),
        ("%1 of %2 files", "%1 Dateien", {"placeholders": "%2 in the source, none in the target"}),
        ("Move %s to %d?", "Nach %2$d %1$s verschieben?", {}),
        ("It is %1. Really", "Es ist %1 Wirklich", {}),
        ("<b>Open</b>", "<b>Öffnen</b>", {}),
        ("<b>Open</b>", "Öffnen</b>", {"tags": "<b> in the source, none in the target"}),
        ("See https://a.org/7.", "Siehe https://a.org/8.",
         {"addresses": "https://a.org/7 in the source, https://a.org/8 in the target"}),
        ("It works.", "Es geht", {"final-mark": ". in the source, none in the target"}),
        ('He said: "It works."', "Er sagte: „Es geht.“", {}),
        ("It works.", "它有效。", {}),
        ("{0} files", "{0} Dateien", {}),
    ],
)  # fmt: skip
def test_differences(source: str, target: str, expected: dict[str, str]) -> None:
    """Catches a pair that teaches a model to lose what it should keep, and a good pair that is suspected."""
    assert dict(pair_differences(source, target, ("en", "de"))) == expected


def test_words_of_two_scripts() -> None:
    """Catches a Cyrillic letter in a Latin word, and units and mixed text taken for it."""
    assert mixed_word("the c\u0430t waits") == "c\u0430t"
    assert mixed_word("the \u0430gain") == "\u0430gain"
    assert mixed_word("the \u03bfld man") == "\u03bfld"
    assert [mixed_word(line) for line in ("a cat", "Москва is big", "5 µm, 3 kΩ, IFNα", "naïve", "я-style")] == [""] * 5


def test_a_corpus_is_examined_for_them(tmp_path: Path) -> None:
    """Catches findings that are not counted, and a side in one case that passes as text."""
    source = write_lines(tmp_path / "x.en", [f"Line {n} of the {n}th page" for n in range(60)])
    target = write_lines(tmp_path / "x.de", [f"zeile {n} der {n}. seite\t" + "x" * (n == 3) for n in range(1, 61)])
    kinds = {finding.kind: finding for finding in examine(source, target).findings}
    assert kinds["numbers"].count == 60
    assert kinds["one-case"].count == 60
    assert kinds["one-case"].examples[0].reason == "60 of x.de in lower case"
    assert kinds["tab"].count == 1
