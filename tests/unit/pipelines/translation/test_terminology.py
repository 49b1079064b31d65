"""Terms, placeholders, loops: what a translation is bound to, and what is told of it."""

import re
from pathlib import Path

import pytest

from transformer.decoding import Search, repeats_itself
from transformer.errors import ConfigError, DataError
from transformer.pipelines.auto import load
from transformer.pipelines.translation.terminology import PATTERNS, Tally, Terminology, read_glossary

EVERYTHING = Terminology(protected=list(PATTERNS))


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("Hello {name}, you owe %s.", ["{name}", "%s"]),
        ("100% sure: %d of %(total)d, %1$s", ["100", "%d", "%(total)d", "%1$s"]),
        ("<b>bold</b> &amp; <br/> a < b > c", ["<b>", "</b>", "&amp;", "<br/>"]),
        ("see https://a.org/x?y=1, or (www.b.de).", ["https://a.org/x?y=1", "www.b.de"]),
        ("write to a.b@c.org!", ["a.b@c.org"]),
        ("at 10:30 on 1.2.2024 for 1,000.50 in B2", ["10:30", "1.2.2024", "1,000.50"]),
        ("${user} {{x y}} {0} %PATH%", ["${user}", "{{x y}}", "{0}", "%PATH%"]),
        ("at 12:30pm 2.5kg of %%s or %.2f and %05d, a <b and c> d", ["%.2f", "%05d"]),
        ('<a href="x y" id=z> {user-name} &#x27;', ['<a href="x y" id=z>', "{user-name}", "&#x27;"]),
        ("nothing here", []),
    ],
)
def test_what_is_protected(line: str, spans: list[str]) -> None:
    """Catches a span cut short, punctuation taken along, and words that are no placeholder."""
    assert EVERYTHING.spans(line) == spans


def test_only_the_chosen_kinds_are_protected() -> None:
    """Catches numbers that must stand though only tags were asked for."""
    assert Terminology(protected=["tags"]).spans("<b>7</b> %s") == ["<b>", "</b>"]
    with pytest.raises(
        ConfigError, match="protected='words' is unknown; choose of entities, numbers, placeholders, tags, urls"
    ):
        Terminology(protected=["words"])


def test_terms_are_whole_words_and_the_longest_counts() -> None:
    """Catches "art" found in "party", and "machine" where "machine learning" is the term."""
    lexicon = Terminology(glossary=[("art", "Kunst"), ("machine", "Maschine"), ("machine learning", "ML")])
    assert lexicon.terms("the art of machine learning") == [("art", "Kunst"), ("machine learning", "ML")]
    assert lexicon.terms("a party") == []
    assert lexicon.required("machine and machine") == {"Maschine": 1}


def test_violations_name_what_is_wrong() -> None:
    """Catches a span that is doubled, lost or invented without a word."""
    lexicon = Terminology(["schlecht"], [("art", "Kunst")], list(PATTERNS))
    assert lexicon.violations("art for {x} and {x}", "Kunst für {x} und {x}") == []
    assert lexicon.violations("art {x} {x} 5", "Art {x} 7 schlecht") == [
        "'{x}' is missing", "'5' is missing", "'7' is not in the source so often", "'art' is not translated by 'Kunst'",
        "the banned 'schlecht' is written",
    ]  # fmt: skip
    tally = Tally()
    tally.add(lexicon, "art {x} {x} 5", "Art {x} 7")
    assert str(tally) == "glossary: 0 of 1 terms; protected: 1 of 3 spans"


def test_a_glossary_is_read_and_its_mistakes_are_named() -> None:
    """Catches a term that is silently the other one, or a line that is silently no term."""
    assert read_glossary(["# ours", "a\tb", "", " c d \t e"], "terms.tsv") == [("a", "b"), ("c d", "e")]
    with pytest.raises(DataError, match=r"terms.tsv, line 2: not a source term, a tab and a target term"):
        read_glossary(["a\tb", "c d"], "terms.tsv")
    with pytest.raises(DataError, match=r"terms.tsv, line 2: 'a' is 'b' before; keep one of the two"):
        read_glossary(["a\tb", "a\tc"], "terms.tsv")
    with pytest.raises(DataError, match="an empty phrase or term binds nothing"):
        Terminology([" "])
    with pytest.raises(DataError, match="the term 'rote Kunst' is required, but 'Kunst' is banned"):
        Terminology(["Kunst"], [("red art", "rote Kunst")])


@pytest.mark.parametrize(
    ("tokens", "loops"),
    [
        ([], False),
        ([5, 5, 5], False),
        ([5] * 7, False),
        ([1, *[5] * 8, 2], True),
        ([1, 2, 1, 2, 1, 2, 1, 2], True),
        ([1, 2, 1, 2, 1, 2, 1], False),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8], True),
        ([1, 2, 3, 4, 1, 5, 1, 6, 1, 7, 1], False),
    ],
)
def test_loops(tokens: list[int], loops: bool) -> None:
    """Catches a loop of longer period, in the middle, or one too few."""
    assert repeats_itself(tokens) == loops


def test_banned_and_required_words_through_the_translator(tiny_run: Path) -> None:
    """Catches phrases spelled for the wrong place, and requirements of a line that reach its neighbours."""
    lines = ["one two three", "seven", "", "nine {x} two"]
    free = load(tiny_run).translations(lines)
    word = next(word for found in free for word in found.text.split())
    banned = load(tiny_run, lexicon=Terminology(banned=[word]))
    bound = banned.translations(lines)
    for spelling in (banned.tokenizers.target.encode(word), banned.tokenizers.target.encode(f"({word}")[1:]):
        written = [" ".join(map(str, part)) for found in bound for part in found.alternatives[0].tokens]
        assert not any(" ".join(map(str, spelling)) in part for part in written)
    assert [found.text for found in bound] != [found.text for found in free]
    lexicon = Terminology(glossary=[("seven", "two two")], protected=["placeholders"])
    held = load(tiny_run, search=Search(8), lexicon=lexicon).translations(lines)
    assert " two two" in f" {held[1].text}", "a term is a word of its own"
    assert "{x}" in held[3].text
    assert held[2].text == ""
    assert held[0].text == load(tiny_run, search=Search(8)).translations(lines)[0].text


def test_what_must_stand_outranks_what_must_not(tiny_run: Path) -> None:
    """Catches a span that is never written for a banned word in it, or because it would be written twice."""
    lines = ["one {two} three {two}", "seven {two}"]
    lexicon = Terminology(["two", "{two}"], protected=["placeholders"])
    found = load(tiny_run, search=Search(8, no_repeat_ngram=2), lexicon=lexicon).translations(lines)
    assert [translation.text.count("{two}") for translation in found] == [2, 1]
    assert not any("banned" in flag for translation in found for flag in translation.flags)


def test_a_number_is_not_part_of_another(tiny_run: Path) -> None:
    """Catches a 5 that stands as the end of 25."""
    (found,) = load(tiny_run, search=Search(8), lexicon=Terminology(protected=["numbers"])).translations(
        ["5 and 25 one"]
    )
    assert {"5", "25"} <= set(re.findall(r"\d+", found.text))
    assert not any("missing" in flag for flag in found.flags)


def test_spans_stand_as_often_as_in_the_line_and_are_not_gone_on_with(tiny_run: Path) -> None:
    """Catches a placeholder held once of two, and a number that a digit after it makes another."""
    lines = ["one %s two %s three", "seven 4 nine"]
    found = load(tiny_run, search=Search(8), lexicon=Terminology(protected=["placeholders", "numbers"])).translations(
        lines
    )
    assert found[0].text.count("%s") == 2
    assert re.search(r"(?<!\d)4(?!\d)", found[1].text)


@pytest.mark.parametrize(("line", "span"), [("one $5 two", "5"), ("(me@x.de)", "me@x.de"), ("four (70)", "70")])
def test_the_search_holds_what_the_check_finds(tiny_run: Path, line: str, span: str) -> None:
    """Catches a number or address that counts as held where it ends a word or another number (`sechs5`)."""
    lexicon = Terminology(protected=["numbers", "urls"])
    translator = load(tiny_run, search=Search(8), lexicon=lexicon)
    (phrase,) = (each for each in translator._speller.phrases(line) if each.joined)
    (joined,), tokenizer = phrase.joined, translator.tokenizers.target
    held = set[bool]()
    for token in range(4, tokenizer.vocab_size):
        text = tokenizer.decode([token, *joined])
        if "\ufffd" not in text and text.endswith(span):
            is_held = phrase.missing([token, *joined])[0] == 0
            assert is_held == (f"{span!r} is missing" not in lexicon.violations(f"({span})", text)), text
            held.add(is_held)
    assert held == {True, False}


def test_a_lexicon_speaks_as_the_tokenizer_writes(tmp_path: Path) -> None:
    """Catches a term that stands in lower case, as all that a model writes, and is called missing."""
    lexicon = Terminology(["Stadt"], [("Berlin", "Hauptstadt Berlin")], ["placeholders"], normalize=str.lower)
    assert lexicon.required("in Berlin, {Name}") == {"{name}": 1, "hauptstadt berlin": 1}
    assert lexicon.violations("in Berlin, {Name}", "in hauptstadt berlin, {name}") == []
    assert lexicon.violations("in", "stadt") == ["the banned 'Stadt' is written"]


def test_what_is_told_is_told_of_whole_words() -> None:
    """Catches a ban of "in" that finds "ein", a term kept by a part of another word, a ban within a placeholder."""
    lexicon = Terminology(["in", "name"], [("dog", "Hund"), ("child", "Kind")], ["placeholders"])
    assert lexicon.violations("{name}", "ein {name}") == []
    assert lexicon.violations("dog", "die Hunde (Kind) in") == [
        "'dog' is not translated by 'Hund'", "the banned 'in' is written"
    ]  # fmt: skip
    tally = Tally()
    tally.add(lexicon, "dog child", "Schäferhund (Kind)")
    assert str(tally) == "glossary: 1 of 2 terms; protected: 0 of 0 spans"
    assert Terminology(protected=["numbers"]).joined("5 and 25 (6)") == {"6"}
