"""Statistics of the training sources."""

import pytest

from transformer.data.source_text import SourceText


def counted(*lines: str) -> SourceText:
    text = SourceText()
    text.count(lines)
    return text


def test_sentences_are_counted_by_line() -> None:
    """Catches a rare number of sentences that counts as learned, and a median of sentences instead of lines."""
    text = counted(*["One."] * 600, *["One. Two."] * 310, *["One. Two. Three."] * 86, *["A. Bee. See. Dee."] * 4)
    assert (text.typical_sentences, text.max_sentences) == (1, 2)
    assert counted(*["One."] * 9, "One. Two.").max_sentences == 2
    paragraphs = counted(*["One. Two. Three."] * 3, "One.")
    assert (paragraphs.typical_sentences, paragraphs.max_sentences) == (3, 3)


def test_characters_and_lines_without_letters() -> None:
    """Catches statistics that two parts of a corpus overwrite, and digits that count as letters."""
    text, other = counted("ab", "7"), counted("bc")
    assert text.has_text_without_letters
    assert not other.has_text_without_letters
    text.add(other)
    assert text.characters == set("ab7c")
    assert text.sentences.total() == 3
    again = SourceText.from_dict(text.to_dict())
    assert again == text
    text.add_characters(None)  # a model that was trained before this was recorded
    assert text.characters is None
    assert SourceText.from_dict(text.to_dict()).characters is None


def test_lines_in_capitals_are_counted() -> None:
    """Catches a case that counts as learned from a few lines, or although an earlier version did not count it."""
    text = counted(*["A LINE IN CAPITALS"] * 12, *["A Line In Title"] * 3, *["An ordinary line"] * 85)
    assert text.has_case("capitals")
    assert not text.has_case("title")
    text.add(counted(*["An ordinary line"] * 50))
    assert SourceText.from_dict(text.to_dict()).cases == {"capitals": 12, "title": 3}
    assert not text.has_case("capitals")
    earlier = {key: value for key, value in text.to_dict().items() if key != "cases"}
    assert not SourceText.from_dict(earlier).has_case("capitals")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"sentences": [], "without_letters": 1},
        {"sentences": {"x": 1}, "without_letters": 0},
        {"sentences": {}, "without_letters": 0, "cases": 7},
    ],
)
def test_a_damaged_record_is_refused(values: dict[str, object]) -> None:
    """Catches a record of another type that fails later, in the middle of a translation."""
    with pytest.raises(ValueError, match=r"source_text|invalid literal"):
        SourceText.from_dict(values)
