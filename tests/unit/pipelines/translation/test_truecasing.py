"""Spans whose case means something."""

from transformer.pipelines.translation.truecasing import kept_spans


def test_phrases_keep_their_case_as_whole_words() -> None:
    """Catches a phrase that is found within a word, or missed because it overlaps such a place."""
    assert kept_spans("xa-a-a a-a", ["a-a"]) == [(3, 6), (7, 10)]
    assert kept_spans("éTom Tom Tom1", ["Tom"]) == [(5, 8)]
    assert kept_spans("Tom", ["Tom", "To", "om"]) == [(0, 3)]


def test_addresses_keep_their_case_also_in_capitals() -> None:
    """Catches an address that is taken for words because the text seems to have words alone."""
    assert kept_spans("SEE HTTP://A.DE/X NOW", []) == [(4, 17)]
    assert kept_spans("SEE <B>ME</B>", []) == [(4, 7), (9, 13)]
