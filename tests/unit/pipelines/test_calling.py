"""Calls of a pipeline from Python: texts and lists, options of the search, wrong types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transformer
from transformer.errors import ConfigError, DataError
from transformer.pipelines.texts import texts_of
from transformer.pipelines.translation.translator import Translator

LINES = ["one two", "", "seven three"]


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    return transformer.load(tiny_run, precision="float32")


def test_a_text_gives_a_text_and_a_list_a_list(translator: Translator) -> None:
    """Catches a single text that is translated letter by letter, and lists of another type than before."""
    expected = [translation.text for translation in translator.translations(LINES)]
    assert translator.translate(LINES) == translator(LINES) == translator(iter(LINES)) == expected
    for line, text in zip(LINES, expected, strict=True):
        assert translator.translate(line) == translator(line) == text


def test_a_search_for_one_call(translator: Translator, tiny_run: Path) -> None:
    """Catches a beam that is ignored, or that stays for later calls."""
    wide = transformer.load(tiny_run, precision="float32", search=transformer.Search(beam=4, n_best=3))
    expected = [[other.text for other in line.alternatives] for line in wide.translations(LINES)]
    greedy = translator.translate(LINES)
    assert translator.translate(LINES, beam=4, n_best=3) == expected
    assert translator.translate(LINES[0], beam=4, n_best=3) == expected[0]
    assert translator.translate(LINES, beam=4) == [texts[0] for texts in expected]
    assert len(translator(LINES[0], n_best=2)) == 2
    assert translator.translate(LINES) == greedy
    assert translator.search.beam == 1
    translator.close()
    assert translator(LINES, beam=4, n_best=3) == expected, "a closed translator can be used again"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, r"lines=None .NoneType. is not a list of texts; give a text or a list"),
        (b"one", r"lines=b'one' .bytes. is not a list of texts; decode bytes first"),
        (7, r"lines=7 .int. is not a list of texts"),
        ({"one": 1}, r"lines=\{'one': 1\} .dict. is not a list of texts"),
        ({"one"}, r"lines=\{'one'\} .set. is not a list of texts"),
        (["one", None], r"lines\[1\]=None .NoneType. is not a text"),
        (["one", 2], r"lines\[1\]=2 .int. is not a text"),
        ([b"one"], r"lines\[0\]=b'one' .bytes. is not a text; decode bytes first"),
        ([["one"]], r"lines\[0\]=\['one'\] .list. is not a text"),
    ],
)
def test_wrong_types_are_explained(texts: Any, message: str, translator: Translator) -> None:
    """Catches the traceback of a library deep below, and results for what is not a text."""
    for call in (translator.translate, translator):
        with pytest.raises(TypeError, match=message):
            call(texts)


def test_what_holds_texts_is_a_list() -> None:
    """Catches arrays and generators that are refused, though their elements are texts."""
    import numpy as np

    for texts in (["a", "b"], ("a", "b"), iter("ab"), np.array(["a", "b"])):
        assert texts_of(texts, "texts") == ["a", "b"]
    with pytest.raises(DataError, match="texts is a single text"):
        texts_of("ab", "texts")


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda run: transformer.load(None), TypeError, "path=None is not a path; give a model folder"),
        (lambda run: transformer.load(b"run"), TypeError, "path=b'run' is not a path"),
        (lambda run: transformer.load(run, search=4), TypeError, "search=4 is not a Search; give e.g."),
        (lambda run: transformer.load(run, beam=4), TypeError, "give search=transformer.Search.beam=...."),
        (lambda run: transformer.load(run, terminolgy=1), TypeError, "did you mean terminology?"),
        (lambda run: transformer.load(run)("one", beem=4), ConfigError, "beem is not an option of the search"),
        (lambda run: transformer.load(run)("one", beam=0), ConfigError, "beam=0"),
    ],
)
def test_wrong_options_are_explained(
    action: Callable[[Path], object], error: type[Exception], message: str, tiny_run: Path
) -> None:
    """Catches an option that is silently ignored, and an error that does not name it."""
    with pytest.raises(error, match=message):
        action(tiny_run)


def test_objects_describe_themselves(translator: Translator) -> None:
    """Catches an address in memory, or pages of tokens, where a reader looks for what it is."""
    assert repr(translator) == f"<Translator: {translator.description}, beam 1>"
    (translation,) = translator.translations(["one two"])
    assert repr(translation) == f"<Translation {translation.text!r}: score {translation.score:.4f}>"
    assert str(translation) == translation.text


def test_half_a_character_is_refused_with_its_place() -> None:
    """Catches a TypeError of the tokenizer's library, which names neither the text nor the character."""
    with pytest.raises(DataError, match=r"lines\[1\] contains half a character .* at position 2"):
        texts_of(["whole", "ha\ud800lf"], "lines")
