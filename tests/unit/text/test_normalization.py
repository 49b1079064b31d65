"""Normalization of white space and invisible characters."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.text.normalization import SPACES, normalize_spaces, remove_invisible, split_outer_space

TRICKY = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("\u200c\u200d\u200b a\u0301\xa0\u3000\ufeffا😀\ufe0f"))
)


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("Je  veux\u202f?", "Je veux ?", "Je  veux\u202f?"),  # a no-break space means something in French
        ("Does\xa0 he\tplay?", "Does he play?", "Does\xa0 he\tplay?"),
        ("Doe\xads he\u200b\u2060 play\ufeff?", "Does he play?", "Does he play?"),
        ("\u200eab\u202acd\u202c\u2066e\u2069", "abcde", "abcde"),
        ("cafe\u0301", "café", "café"),
        ("e\u200b\u0301", "é", "é"),  # composed once nothing is between
        (" a\rb\x0bc\u2028d ", "a b c d", " a\rb\x0bc\u2028d "),
        ("می\u200cخواهم", "می\u200cخواهم", "می\u200cخواهم"),  # a joiner that Persian needs
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("a\u200cb", "ab", "ab"),
    ],
)
def test_normalization_of_both_sides(text: str, source: str, target: str) -> None:
    """Catches an invisible character that stays, and a visible one, or a joiner, that is lost."""
    assert (normalize_spaces(text), remove_invisible(text)) == (source, target)


@given(TRICKY)
def test_normalization_is_idempotent_and_composed(text: str) -> None:
    """Catches a second pass that changes the text again, so that training and translation would differ."""
    for normalize in (remove_invisible, normalize_spaces):
        once = normalize(text)
        assert normalize(once) == once == unicodedata.normalize("NFC", once)
    assert normalize_spaces(text) == " ".join(normalize_spaces(text).split())


@given(TRICKY)
def test_outer_space_and_text_make_the_whole(text: str) -> None:
    """Catches a text that does not come back as it stood."""
    before, inner, after = split_outer_space(text)
    assert before + inner + after == text
    assert inner == inner.strip()
    assert split_outer_space(inner) == ("", inner, "")


def test_white_space_is_that_of_python() -> None:
    """Catches a kind of space that is missing in the pattern."""
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert [space for space in spaces if not re.fullmatch(SPACES, space)] == []
    assert not re.search(SPACES, "".join(chr(code) for code in range(0x21, 0x7F)))
