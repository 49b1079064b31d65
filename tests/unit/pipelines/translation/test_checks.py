"""Numbers and addresses that translations must not change, and substitutes for them."""

import pytest

from transformer.pipelines.translation.checks import changed_spans, repeats_word
from transformer.pipelines.translation.results import Alternative, Translation
from transformer.pipelines.translation.retry import SubstitutedLine


@pytest.mark.parametrize(
    ("line", "translation", "changed"),
    [
        ("I paid 24986 for it.", "Ich habe 24986 bezahlt.", []),
        ("I paid 24986 for it.", "Ich habe 24968 bezahlt.", ["24986"]),
        ("I paid 24986 for it.", "Ich habe dafür bezahlt.", ["24986"]),
        ("It was 1,000.50 euros.", "Es waren 1.000,50 Euro.", []),  # separators of another language
        ("It was 1,000 euros.", "Es waren 10.000 Euro.", ["1,000"]),
        ("at 2:30 pm", "um 14:30 Uhr", []),
        ("at 2:30 pm", "um 15:30 Uhr", ["2:30"]),
        ("She has 2 dogs.", "Sie hat zwei Hunde.", []),
        ("She has 2 dogs and 300 cats.", "Sie hat zwei Hunde und dreihundert Katzen.", ["300"]),
        ("She is 7, he is twelve.", "Sie ist 7, er ist 12.", []),
        ("Do you know 6?", "6 kennst du 6?", ["6"]),
        ("I paid 8.6.2023.", "8.6.2023 023 bezahlt.", ["23"]),  # no word is written with a leading zero
        ("in the 1980s", "in den 1980ern", []),
        ("the 21st of May", "der 21. Mai", []),
        ("no number", "keine 55", []),  # as in "five" and 5: nothing to compare with
        ("3x3", "33x3", ["3x3"]),
        ("3 + 4", "7", []),  # without a letter it is no text
        ("9" * 5000 + " a", "a", ["9" * 5000]),
        ("a 3x3 grid", "ein 33x3-Gitter", ["3x3"]),
        ("See www.a.de.", "Siehe www.a.de!", []),
        ("See www.a.de.", "Siehe www.b.de.", ["www.a.de"]),
        ("See www.a.de/2.", "Siehe www.a.de/3.", ["www.a.de/2"]),
        ("a <b>5</b> <i x='7'>6</i>", "eine <i x='7'>5</i> <b>6</b>", []),  # the number of a tag is none
    ],
)  # fmt: skip
def test_changed_numbers_and_addresses(line: str, translation: str, changed: list[str]) -> None:
    """Catches a wrong number that stays, and a right translation that is taken for wrong."""
    assert changed_spans(line, translation) == changed


def test_a_word_that_repeats() -> None:
    """Catches a stutter that stays, and one that the source has too, or digits, taken for it."""
    assert repeats_word("Volkswagen AG", "V V V Volksons")
    assert repeats_word("a <b>b</b>", "x <b>x</b> X")
    assert not repeats_word("No, no, no!", "Nein, nein, nein!")
    assert not repeats_word("7 7 7 five", "7 7 7 fünf")


def translation(text: str, words: tuple[list[int], list[int]] | None = None) -> Translation:
    """Returns a translation with a second alternative that has lost its numbers."""
    alternatives = tuple(Alternative(other, -1.0, -1.0, finished=True) for other in (text, "nichts"))
    return Translation(alternatives, words=words)


def test_substitutes_are_replaced_by_what_they_stand_for() -> None:
    """Catches two spans that are swapped, a substitute that the line has itself, and an alternative without them."""
    line = "Mail anna@x.org by 30 June, or call +49 30 5551."
    attempt = SubstitutedLine.of(line, [], 0)
    assert attempt is not None
    assert attempt.text == "Mail 50 by 40 June, or call 20."
    restored = attempt.restore(translation("Ruf 20 an oder schreib bis 40. Juni an 50."))
    assert restored is not None
    assert [alternative.text for alternative in restored.alternatives] == [
        "Ruf +49 30 5551 an oder schreib bis 30. Juni an anna@x.org."
    ]
    assert restored.words == ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 5, 6, 7, 8, 9, 10, 11])
    again = SubstitutedLine.of(line, [], 1)
    assert again is not None
    assert again.text == "Mail 40 by 20 June, or call 70."


def test_only_what_changed_is_replaced() -> None:
    """Catches a number whose grammar mattered replaced without need, and the number of a tag replaced."""
    attempt = SubstitutedLine.of("<a n='512'>1 dog</a> and 512 cats", ["512"], 0)
    assert attempt is not None
    assert attempt.text == "<a n='512'>1 dog</a> and 30 cats"


@pytest.mark.parametrize("text", ["Es kostet 300.", "Es kostet 30,5.", "Es kostet 30 bis 30.", "Es kostet dreißig."])
def test_a_substitute_that_does_not_survive(text: str) -> None:
    """Catches a number put into the middle of another one, twice, or nowhere."""
    attempt = SubstitutedLine.of("It is 1234.", ["1234"], 0)
    assert attempt is not None
    assert attempt.restore(translation(text)) is None
    assert SubstitutedLine.of("no number", [], 0) is None
    assert SubstitutedLine.of(" ".join(f"a{i} {i}" for i in range(100, 120)), [], 0) is None
