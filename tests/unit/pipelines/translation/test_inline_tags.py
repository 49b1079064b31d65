"""Inline tags: removed from a line before translation, and restored around the corresponding words."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.decoding import Sampling, Search
from transformer.pipelines.auto import load
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.alignment_output import word_alignment
from transformer.pipelines.translation.assemble import transfer_tags
from transformer.pipelines.translation.inline_tags import count_units, restore_tags, strip_tags, tagged_word_ids
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.pipelines.translation.terminology import Terminology, TerminologyCounts
from transformer.text.spans import PATTERNS

ANY_TAG = re.compile(r"<[^<>]+>")
EVERYTHING = Terminology(protected=list(PATTERNS))
SPANS = ["%(name)s", "{count}", "{{a b}}", "3.50", "12:30", "&amp;", "http://a.b/c?d=1", "a.b@c.org"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("a <b>b c</b> d", "a b c d"),
        ("<p>One.</p> <p>Two <i>and <b>three</b></i>!</p>", "One. Two and three!"),
        ("un<b>believ</b>able", "unbelievable"),
        ("a <br/> b", "a b"),
        ("a<br/> b <br/>c", "a b c"),
        ("<br> a b", "a b"),
        ("a b <img src='x y'/>", "a b"),
        ("a <img alt = 'x > y' :b=c.d/> b", "a b"),
        ("<file name> <example.org> <http://a.b/>", "<file name> <example.org> <http://a.b/>"),
        ("a <b> b </b> c", "a b c"),
        ("x</b> y <i>z", "x y z"),
        ("a <b><i></b>c</i> d", "a c d"),
        ("1 < 2 and <3> & {x}", "1 < 2 and <3> & {x}"),
        ("", ""),
    ],
)
def test_an_unchanged_line_gets_its_tags_back(line: str, text: str) -> None:
    """Catches a superfluous or missing space, and a tag that lands one word too early or too late."""
    tag_free = strip_tags(line)
    assert tag_free.text == text
    restored = restore_tags(tag_free, text, list(range(count_units(text))))
    within_a_word = line == "un<b>believ</b>able"
    assert restored.text == ("<b>unbelievable</b>" if within_a_word else line)
    assert not restored.empty or "<b><i></b>" in line


def test_tags_that_separate_words() -> None:
    """Catches `OneTwo`, which no model knows."""
    assert strip_tags("<p>One</p><p>Two</p>").text == "One Two"
    assert strip_tags("<li>a<br>b").text == "a b"
    assert strip_tags("<option>a</option><option>b</option>").text == "a b"
    assert strip_tags("H<sub>2</sub>O").text == "H2O"


@pytest.mark.parametrize(
    ("line", "translation", "origins", "expected"),
    [
        (
            "the <b>old man</b> sleeps",
            "es schläft der alte Mann",
            [None, 3, 0, 1, 2],
            "es schläft der <b>alte Mann</b>",
        ),
        ("<p>the <i>old</i> man</p>", "Mann der alte !", [2, 0, 1, None], "<p>Mann der <i>alte</i> !</p>"),
        ("a <b>b</b> <i>c</i>", "c x b a", [2, None, 1, 0], "<i>c</i> x <b>b</b> a"),
        ("he <b>gives up</b>.", "er gibt es auf.", [0, 1, 1, 2, 3], "er <b>gibt es auf</b>."),
        ("he <b>gives up</b> now", "auf x y z er gibt", [2, 3, 3, 3, 0, 1], "<b>auf</b> x y z er gibt"),
        ("a <br/>b c", "c b a", [2, 1, 0], "c <br/>b a"),
        ("a b <br/>c", "b x a", [1, None, 0], "b <br/>x a"),
        ("a <b>b <i>c</i></b> d", "c d a b", [2, 3, 0, 1], "<b><i>c</i></b> d a b"),
        ("a <b>b</b> c", "x y z", [None, None, None], "x <b></b>y z"),
        ("<b>a</b>", "", [], "<b></b>"),
        ("<br>" * 100 + "<b>a</b> b", "b a", [1, 0], "<br>" * 100 + "b <b>a</b>"),
        ("<i>" * 101 + "<b>a</b>" + "</i>" * 101 + " b", "b a", [1, 0], "b " + "<i>" * 101 + "<b>a</b>" + "</i>" * 101),
    ],
)
def test_tags_go_where_their_words_went(line: str, translation: str, origins: list[int | None], expected: str) -> None:
    """Catches an element that stays in place, loses a part, encloses foreign words, or leaves its parent."""
    assert restore_tags(strip_tags(line), translation, origins).text == expected


@pytest.mark.parametrize(
    ("line", "translation", "origins", "readers", "expected", "beside"),
    [
        (
            "apply to <b>all</b> commands",
            "alle Befehle betreffen",
            [3, 3, 0],
            {2: 0},
            "<b>alle</b> Befehle betreffen",
            0,
        ),
        ("a <b>b</b> <i>c</i>", "x y z", [0, 2, 2], {1: 1}, "x <b>y</b> <i>z</i>", 0),
        ("a <b>b</b> <i>c</i>", "x y z", [0, 2, None], {1: 1}, "x <i>y</i> <b>z</b>", 1),
        ("a <b>b c</b> d", "x, y z", [0, 0, 0, 3], {1: 1, 2: 2}, "x, <b>y</b> z", 0),
        ("a <b>b c</b> d", "w x y z", [0, 0, 0, 3], {1: 1, 2: 2}, "w <b>x y</b> z", 0),
        ("a <u><b>b</b> <i>c</i></u>", "x y z", [0, 1, 1], {2: 0}, "x <u><b>y z</b><i></i></u>", 0),
        ("<b>a</b> <i>b</i>", "x", [0], {1: 0}, "<b>x</b><i></i>", 0),
    ],
)
def test_an_element_that_no_unit_comes_from_encloses_its_reader(
    line: str, translation: str, origins: list[int | None], readers: dict[int, int], expected: str, beside: int
) -> None:
    """Catches empty emphasis beside the word that it belongs to, a comma in bold, and a word taken from another."""
    restored = restore_tags(strip_tags(line), translation, origins, lambda: readers)
    assert restored.text == expected
    assert len(restored.beside) == beside


class ReversingAligner:
    """An aligner by which a translation has its words in the opposite order."""

    def origins(
        self, segments: Sequence[tuple[Sequence[int], Sequence[int]]], source_units: Sequence[int], target_units: int
    ) -> list[int]:
        """Returns the units of the source, last unit first."""
        assert segments == [((7, 8, 9, 2), (5, 6, 4))]
        assert target_units == len(source_units)
        return list(reversed(source_units))

    def readers(self, *_: object) -> dict[int, int]:
        """Returns none, since every unit has an origin."""
        return {}


def test_tags_go_where_the_aligner_finds_their_words() -> None:
    """Catches words that are aligned in the order of the translation, or with those of another alternative."""
    line = "<b>one</b> two three"
    alternatives = tuple(
        replace(EMPTY_ALTERNATIVE, text=text, tokens=((5, 6, 4),)) for text in ("drei zwei eins", "III II I")
    )
    translation = Translation(alternatives, ("cut",), ((7, 8, 9, 2),))
    aligner = cast(Aligner, ReversingAligner())
    tagged = transfer_tags(aligner, line, strip_tags(line), translation, [0, 1, 2])
    assert [alternative.text for alternative in tagged.alternatives] == ["drei zwei <b>eins</b>", "III II <b>I</b>"]
    assert (tagged.flags, tagged.sources) == (("cut",), translation.sources)


def test_an_element_without_words_is_reported() -> None:
    """Catches emphasis that is lost without a flag."""
    assert restore_tags(strip_tags("a <b>b</b> <i></i> c"), "x y", [0, 2]).empty == ["<b>"]
    assert restore_tags(strip_tags("a <b>b</b> c"), "x y", [0, 1]).empty == []


def test_lines_of_many_tags_are_fast() -> None:
    """Catches recursion as deep as the nesting, and quadratic time in the number of elements."""
    for line in ("<b>" * 5000 + "one" + "</b>" * 5000, "<b>" * 3000, "".join(f"<i>w{n}</i> " for n in range(3000))):
        tag_free = strip_tags(line)
        units = count_units(tag_free.text)
        actual = restore_tags(tag_free, tag_free.text, list(range(units))).text
        assert Counter(ANY_TAG.findall(actual)) == Counter(ANY_TAG.findall(line))


def drawn_line(draw: random.Random, unpaired: list[str], depth: int = 0) -> str:
    """Draws a line of words, nested elements and unpaired tags."""
    parts: list[str] = []
    for _ in range(draw.randrange(1, 5)):
        kind = draw.random()
        if kind < 0.4 and depth < 4:
            name = draw.choice("biu")
            parts.append(f"<{name}>{drawn_line(draw, unpaired, depth + 1)}</{name}>")
        elif kind < 0.5:
            parts.append(draw.choice(unpaired))
        else:
            parts.append(draw.choice(["one", "two,", "three", "(four)", "five!"]))
    return draw.choice(["", " "]).join(parts)


def test_all_tags_are_restored_with_their_nesting() -> None:
    """Catches, in a thousand random lines, tags that are lost, doubled or closed before they open, and moved words."""
    draw = random.Random(5)
    for number in range(1000):
        is_html = number % 2 == 0
        line = drawn_line(draw, ["<br/>", "<img src='1'/>"] if is_html else ["<b>", "</u>", "<br/>"])
        tag_free = strip_tags(line)
        assert not ANY_TAG.search(tag_free.text)
        translation = " ".join(draw.choice(["eins", "zwei,", "drei!"]) for _ in range(draw.randrange(9)))
        n_units = count_units(translation)
        origins = [draw.choice([None, *range(len(tag_free.merged_ids))]) for _ in range(n_units)]
        readers = {unit: draw.randrange(n_units) for unit in range(len(tag_free.merged_ids)) if n_units}
        actual = restore_tags(tag_free, translation, origins, partial(dict, readers)).text
        assert Counter(ANY_TAG.findall(actual)) == Counter(ANY_TAG.findall(line))
        assert "".join(ANY_TAG.sub("", actual).split()) == "".join(translation.split())
        if is_html:
            assert ancestors(actual) == ancestors(line), (line, actual)


def ancestors(text: str) -> Counter[tuple[str, ...]]:
    """Counts each element with its ancestors; fails if one is not closed in order."""
    elements: Counter[tuple[str, ...]] = Counter()
    stack: list[str] = []
    for tag in ANY_TAG.findall(text):
        if tag.startswith("</"):
            assert stack.pop() == tag[2:-1], text
        else:
            elements[(*stack, tag)] += 1
            stack += [] if tag.endswith("/>") else [tag[1:-1]]
    assert not stack, text
    return elements


def test_the_model_sees_no_tags(tiny_run: Path) -> None:
    """Catches a tag that changes the translation, a search that is refused because of tags, and a lost tag."""
    lines = ["one <b>two</b> three", "<i>seven</i><br/>nine", "<b></b>", "one two", "6 &amp; five"]
    bare = ["one two three", "seven nine", "", "one two", "6 &amp; five"]
    for search in (Search(), Search(4, n_best=3), Search(sampling=Sampling(seed=3))):
        tagged = load(tiny_run, search=search, terminology=Terminology(protected=["tags"])).translations(lines)
        plain = load(tiny_run, search=search, terminology=Terminology(protected=[])).translations(bare)
        for line, with_them, without in zip(lines, tagged, plain, strict=True):
            for actual, expected in zip(with_them.alternatives, without.alternatives, strict=True):
                assert "".join(ANY_TAG.sub("", actual.text).split()) == "".join(expected.text.split())
                assert Counter(ANY_TAG.findall(actual.text)) == Counter(ANY_TAG.findall(line))
                assert actual.score == expected.score
    assert Terminology(protected=["entities"]).protected_spans("<b>x</b> &amp; &#182;") == ["&amp;", "&#182;"]


@pytest.mark.parametrize(
    ("line", "translation", "origins", "expected"),
    [
        ("<b>Use</b> %(name)s now.", "%(name)s nun", [0, 2, 3, 0, 0, 5], "<b>%(name)s</b> nun"),
        ("a <b>b</b> {count}", "{count} a", [3, 1, 4, 0], "{count} a<b></b>"),
        ("it costs <b></b>3.50", "3.50", [2, 3, 4], "<b></b>3.50"),
        ("3.<b></b>50 a", "a 3.50", [3, 0, 1, 2], "a <b>3.50</b>"),
        ("%<b>(name</b>)s a", "a %(name)s", [5, 0, 1, 2, 3, 4], "a <b>%(name)s</b>"),
        ("x <br/>&amp; y", "y &amp; x", [4, 1, 2, 3, 0], "y <br/>&amp; x"),
    ],
)
def test_tags_do_not_split_protected_spans(
    line: str, translation: str, origins: list[int | None], expected: str
) -> None:
    """Catches `%<b>(name</b>)s` and `3.<b></b>50`, due to attention or to a tag inside a span of the line."""
    tag_free = EVERYTHING.tag_free(line)
    assert restore_tags(tag_free, translation, origins).text == expected
    assert EVERYTHING.violations(line, expected) == [
        f"{span!r} is missing" for span in EVERYTHING.protected_spans(tag_free.text) if span not in translation
    ]


@given(st.data())
def test_tags_never_split_spans(data: st.DataObject) -> None:
    """Catches a span that a tag splits, for any attention; a lost tag; and a flag without a reason."""
    parts = data.draw(
        st.lists(st.sampled_from([*SPANS, "one", "two,", "!", "<b>", "</b>", "<i>", "</i>", "<br/>"]), max_size=12)
    )
    line = data.draw(st.sampled_from(["", " "])).join(parts)
    tag_free = EVERYTHING.tag_free(line)
    spans = EVERYTHING.protected_spans(tag_free.text)
    translation = " ".join(data.draw(st.permutations([*spans, "eins", "zwei,"])))
    any_unit = st.sampled_from([None, *range(len(tag_free.merged_ids))])
    n_units = count_units(translation)
    origins = data.draw(st.lists(any_unit, min_size=n_units, max_size=n_units))
    units = range(len(tag_free.merged_ids) if n_units else 0)
    readers = {unit: data.draw(st.integers(0, n_units - 1)) for unit in units}
    actual = restore_tags(tag_free, translation, origins, lambda: readers).text
    tags: list[str] = ANY_TAG.findall(line)
    if sorted(EVERYTHING.protected_spans(translation)) == sorted(spans):
        assert EVERYTHING.violations(line, actual) == []
    assert EVERYTHING.count_spans(actual) == Counter([*tags, *EVERYTHING.protected_spans(translation)])


def test_a_span_that_a_tag_splits_is_reported() -> None:
    """Catches a check of the text before its tags are restored, and terms that are not recognized between tags."""
    terminology = Terminology(glossary=[("old man", "alter Mann")], protected=list(PATTERNS))
    assert terminology.changed_spans("a <b>{x}</b>", "{<b>x}</b>") == (["{x}"], [])
    assert terminology.changed_spans("a <b>x</b>", "a <b>x") == (["</b>"], [])
    assert terminology.violations("<i>old <b>man</b></i>", "<i>alter <b>Mann</b></i>") == []
    counts = TerminologyCounts()
    counts.add(terminology, "an old <b>man</b> {x}", "ein alter <b>Mann</b> {<i>x</i>}")
    assert str(counts) == "glossary: 1 of 1 terms in place; protected: 2 of 3 spans"


@pytest.mark.parametrize(
    ("text", "tagged", "words"),
    [
        ("a b", "a <br> b", [0, 2]),
        ("a b c", '<a href="x y">a</a> b<br/> c', [2, 3, 4]),
        ("One Two", "<p>One</p><p>Two</p>", [0, 0]),
        ("a b", " <b> a b </b> ", [1, 2]),
        ("", "<b></b>", []),
    ],
)
def test_words_are_counted_with_tags(text: str, tagged: str, words: list[int]) -> None:
    """Catches word indices that differ from those of the lines split at spaces."""
    assert tagged_word_ids(text, tagged) == words
    assert strip_tags(tagged).text == text


def test_links_count_the_words_of_the_final_lines(tiny_run: Path) -> None:
    """Catches links that count the words of the lines without tags."""
    translator = load(tiny_run, terminology=Terminology(protected=["tags"]))
    tagged, plain = translator.translations(["one <br> <i>two</i> three", "one two three"])
    words = [text.split() for text in ("one <br> <i>two</i> three", tagged.text, "one two three", plain.text)]
    links, expected = (word_alignment(translator, translation) for translation in (tagged, plain))
    assert expected

    def named(links: list[tuple[int, int]], source: list[str], target: list[str]) -> list[tuple[str, str]]:
        return [(ANY_TAG.sub("", source[s]), ANY_TAG.sub("", target[t])) for s, t in links]

    assert named(links, *words[:2]) == named(expected, *words[2:])
