"""Numbers and addresses that translations must not change, and substitutes for them."""

import pytest

from transformer.pipelines.translation.checks import compare_spans, repeats_word
from transformer.pipelines.translation.results import Alternative, Translation
from transformer.pipelines.translation.retry import restore_if_complete
from transformer.text.substitution import SubstitutedLine


@pytest.mark.parametrize(
    ("line", "translation", "flag"),
    [
        ("I paid 24986 for it.", "Ich habe 24986 bezahlt.", ""),
        ("I paid 24986 for it.", "Ich habe 24968 bezahlt.", "the translation has '24968' instead of '24986'"),
        ("I paid 24986 for it.", "Ich habe dafür bezahlt.", "the translation lacks '24986'"),
        ("no number", "keine 55", "the translation adds '55'"),
        ("3 + 4", "7", ""),  # without a letter it is no text
        ("See www.a.de.", "Siehe www.a.de!", ""),
        ("See www.a.de.", "Siehe www.b.de.", "the translation has 'www.b.de' instead of 'www.a.de'"),
        ("See www.a.de/2.", "Siehe www.a.de/3.", "the translation has 'www.a.de/3' instead of 'www.a.de/2'"),
        ("a <b>5</b> <i x='7'>6</i>", "eine <i x='7'>5</i> <b>6</b>", ""),  # the number of a tag is none
    ],
)  # fmt: skip
def test_changed_numbers_and_addresses(line: str, translation: str, flag: str) -> None:
    """Catches a wrong number that stays, and a right translation that is taken for wrong."""
    changes = compare_spans(line, translation, ("en", "de"))
    assert bool(changes) == bool(flag)
    assert not flag or changes.flag == flag


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
    line = "Come to 1234 by 30 June, pay €9.50 at 2:15 pm, or call +49 30 5551."
    attempt = SubstitutedLine.of_numbers(line, [], 0, ("en", "de"))
    assert attempt is not None
    assert attempt.text == "Come to 40 by July 30, pay 70 euros at 4:30, or call 80."
    restored = restore_if_complete(attempt, translation("Ruf 80 an oder zahl 70 Euro um 4:30 Uhr, bis 30. Juli an 40."))
    assert restored is not None
    assert [alternative.text for alternative in restored.alternatives] == [
        "Ruf +49 30 5551 an oder zahl 9,50\u00a0€ um 14:15 Uhr, bis 30. Juni an 1234."
    ]
    assert restored.words == (
        [0, 1, 2, 3, 4, 4, 6, 7, 7, 8, 9, 11, 12, 13],  # "70 euros" stands for one word, "4:30" for two
        [0, 1, 4, 5, 6, 7, 7, 9, 10, 11, 12, 13, 13, 15, 16],
    )
    again = SubstitutedLine.of_numbers(line, [], 1, ("en", "de"))
    assert again is not None
    assert again.text.startswith("Come to 20 by 70, pay 60 at 80")


def test_only_what_changed_is_replaced() -> None:
    """Catches a number whose grammar mattered replaced without need, and the number of a tag replaced."""
    attempt = SubstitutedLine.of_numbers("<a n='512'>1 dog</a> and 512 cats", ["512"], 0, ("en", "de"))
    assert attempt is not None
    assert attempt.text == "<a n='512'>1 dog</a> and 30 cats"


@pytest.mark.parametrize("text", ["Es kostet 300.", "Es kostet 30,5.", "Es kostet 30 bis 30.", "Es kostet dreißig."])
def test_a_substitute_that_does_not_survive(text: str) -> None:
    """Catches a number put into the middle of another one, twice, or nowhere."""
    attempt = SubstitutedLine.of_numbers("It is 1234.", ["1234"], 0, ("en", "de"))
    assert attempt is not None
    assert restore_if_complete(attempt, translation(text)) is None
    assert SubstitutedLine.of_numbers("no number", [], 0, ("en", "de")) is None
    assert SubstitutedLine.of_numbers(" ".join(f"a{i} {i}" for i in range(100, 120)), [], 0, ("en", "de")) is None
