"""Lines that are tried once more: empty translations, repeated words, changed numbers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from substitution import substitute
from transformer.decoding import Hypothesis, Request, Search
from transformer.pipelines.auto import load
from transformer.pipelines.translation.checks import UNSEEN
from transformer.pipelines.translation.translator import Translator


@pytest.fixture
def copier(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> Translator:
    """A translator that copies, but writes nothing, or a word too often, if nothing forbids it.

    It makes 512 to 52, and loses all digits next to "eight".
    """
    translator = load(tiny_run)
    source, target = translator.tokenizers.source, translator.tokenizers.target

    def search_each(
        _: Any, requests: Iterator[Request], search: Search, **__: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            text = source.decode(request.source[:-1])
            text = re.sub(r"\d+", "", text) if "eight" in text else text.replace("512", "52")
            if "five" in text:
                text = "five" if search.no_repeat_ngram else "five five five"
            if "nine" in text:
                text = "nine" * bool(search.min_tokens)
            yield index, [Hypothesis(target.encode(text), -1.0, finished=True, ranking_score=-1.0)]

    substitute(monkeypatch, "search.search_each", search_each)
    return translator


@pytest.mark.parametrize(
    ("line", "text", "flag"),
    [
        ("one 512 two", "one 512 two", ""),
        ("five", "five", "the first translation repeated a word; searched again"),
        (" nine ", " nine ", "the first translation was empty; searched again"),
        ("one 6", "one 6", ""),
        ("eight 512", "eight ", "the translation lacks '512'"),
    ],
)
def test_a_wrong_translation_is_corrected(copier: Translator, line: str, text: str, flag: str) -> None:
    """Catches a correction that is not tried, not taken, or not told, and outer spaces that double."""
    (translation,) = copier.translations([line])
    assert translation.text == text
    assert [other for other in translation.flags if not other.startswith(UNSEEN)] == [flag] * bool(flag)
    assert translation.unseen == tuple(sorted(set(filter(str.isdigit, line))))
    (uncorrected,) = copier.translations([line], search=Search(retry_degenerate=False))
    assert (uncorrected.text == text) == (line in ("one 6", "eight 512"))


def test_what_stays_wrong_is_told(copier: Translator) -> None:
    """Catches a changed number without a word, and a line of many numbers that takes long."""
    line = "512 or " + " and ".join(f"{number}0 or" for number in range(2, 10))
    (translation,) = copier.translations([line])
    assert translation.text == line.replace("512", "52")
    assert translation.flags[-1] == "the translation has '52' instead of '512'"


def test_the_other_lines_stay_as_they_are(copier: Translator) -> None:
    """Catches a corrected translation that lands in another line."""
    lines = ["one", "one 512", "", "two", "nine", "512 two"]
    assert [translation.text for translation in copier.translations(lines)] == lines


@pytest.mark.parametrize(
    ("line", "score", "searches"), [("one 512", -0.1, 3), ("one 512", -100.0, 2), ("512 one 77", -0.1, 2)]
)
def test_hopeless_lines_get_one_choice_of_substitutes(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, line: str, score: float, searches: int
) -> None:
    """Catches lines that the model cannot translate, or with several numbers, that take three times as long."""
    limits: list[int] = []

    def lose_numbers(
        _: Any, requests: Iterator[Request], *__: Any, **___: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            limits.append(request.limit)
            yield index, [Hypothesis([5, 6], score, finished=True, ranking_score=score)]

    substitute(monkeypatch, "search.search_each", lose_numbers)
    load(tiny_run).translations([line])
    assert len(limits) == searches


@pytest.mark.parametrize(("first", "limit"), [(8, 15), (50, 52)])
def test_a_second_search_ends_where_the_first_did(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, first: int, limit: int
) -> None:
    """Catches a line whose second search takes several times as long as the first, and one that is cut too early."""
    limits: list[int] = []

    def loop(_: Any, requests: Iterator[Request], *__: Any, **___: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            limits.append(request.limit)
            yield index, [Hypothesis([7] * first, -1.0, finished=True, ranking_score=-1.0)]

    substitute(monkeypatch, "search.search_each", loop)
    load(tiny_run).translations(["one"])
    assert limits == [52, limit]


def test_lines_without_a_problem_are_ready_before_the_second_search(copier: Translator) -> None:
    """Catches lines that wait for the second search of another, and ones that are reported before they are right."""
    lines, ready = ["one", "nine", "two", "one 512"], dict[int, str]()
    translations = copier.translations(lines, on_ready=lambda some: ready.update({i: t.text for i, t in some.items()}))
    assert ready == {0: "one", 2: "two"}
    assert [translation.text for translation in translations] == lines
    ready.clear()
    copier.translations(["one", "two"], on_ready=lambda some: ready.update({i: t.text for i, t in some.items()}))
    assert not ready, "nothing is searched for again"
