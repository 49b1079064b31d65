"""Whether a translation has all sentences, and the notes on many lines."""

import pytest

from transformer.pipelines.translation.checks import lacks_sentences, unseen_flag
from transformer.pipelines.translation.flag_summary import FlagSummary
from transformer.pipelines.translation.results import Alternative, Translation
from transformer.text.sentences import count_sentences


@pytest.mark.parametrize(
    ("translation", "n_tokens", "ratio", "lacks"),
    [
        ("Eins.", (12, 6), 1.0, True),
        ("Eins. Zwei.", (12, 6), 1.0, False),  # both are there, however short
        ("Eins und zwei.", (12, 11), 1.0, False),  # joined
        ("Eins.", (12, 6), 0.5, False),  # as long as this pair of languages makes it
        ("一。", (12, 6), 1.0, True),
    ],
)
def test_a_translation_that_lacks_a_sentence(
    translation: str, n_tokens: tuple[int, int], ratio: float, *, lacks: bool
) -> None:
    """Catches a lost sentence, and two sentences that were joined taken for a loss."""
    assert lacks_sentences((2, count_sentences(translation)), n_tokens, ratio) == lacks
    assert not lacks_sentences((1, 1), n_tokens, ratio)


def test_a_short_sentence_that_is_missing_may_be_noted() -> None:
    """Catches a lost "It was good.", which makes a translation only a little shorter than others."""
    assert not lacks_sentences((2, 1), (13, 12), 1.0)
    assert lacks_sentences((2, 1), (13, 12), 1.0, 0.0)
    assert not lacks_sentences((2, 2), (13, 12), 1.0, 0.0)


def test_notes_on_many_lines_are_few() -> None:
    """Catches one note per line, a count that is off by one, and a character without its count."""
    summary = FlagSummary()
    for number in range(1, 71):
        summary.add(number, ("it repeats itself",) * (number % 7 == 0) + (unseen_flag(("☃",)),), ("☃",))
    summary.add(71, ("it was cut",))
    assert summary.notes() == [
        "line 7 and 9 others: it repeats itself",
        "line 71: it was cut",
        "never seen in training: '☃' (70)",
    ]
    assert summary.hides_lines
    for number in range(100):
        summary.add(number, (f"{number} is missing",))
    assert len(summary.notes()) == 12
    assert summary.notes()[-1] == "92 other notes"
    for number in range(10_000):
        summary.add(number, (f"'{number}' occurs more often than in the source",))
    assert len(summary.n_lines) == 1000  # a text of any length takes bounded memory
    assert summary.notes()[-1] == "10,092 other notes"


def test_other_notes_are_counted_by_line() -> None:
    """Catches a count of kinds of notes where the other counts are of lines."""
    summary = FlagSummary()
    for kind in range(12):
        for number in range(100):
            summary.add(number, (f"{kind} is missing",))
    assert summary.notes()[-1] == "200 other notes"


def test_lines_that_notes_do_not_name() -> None:
    """Catches characters without their lines, and no word about how to see these."""
    summary = FlagSummary()
    assert not summary.hides_lines
    summary.add(3, (unseen_flag(("☃",)),), ("☃",))
    assert summary.hides_lines


@pytest.mark.parametrize(("count", "note"), [(0, None), (1, "1 line "), (3, "3 lines ")])
def test_copied_lines_are_told(count: int, note: str | None) -> None:
    """Catches lines that are no longer translated, without a word about it."""
    notes = FlagSummary(n_copied=count).notes()
    end = f"without letters, or with addresses alone, {'was' if count == 1 else 'were'} copied"
    assert notes == ([] if note is None else [note + end])


def test_outer_space_is_put_back_around_all_alternatives() -> None:
    """Catches white space that is lost, line ends that come back, and word numbers that ignore an invisible word."""
    alternatives = Alternative("eins zwei", -1.0, -1.0, finished=True), Alternative("zwei", -2.0, -2.0, finished=True)
    plain = Translation(alternatives)
    assert plain.with_outer_space("one two", "", "") is plain
    spaced = plain.with_outer_space("one two", "\t ", "\xa0\n")
    assert [other.text for other in spaced.alternatives] == ["\t eins zwei\xa0", "\t zwei\xa0"]
    assert spaced.words is None
    assert plain.with_outer_space("one two", "\u200b ", "").words == ([1, 2], [1, 2])
