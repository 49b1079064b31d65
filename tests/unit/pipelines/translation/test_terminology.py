"""Terms, placeholders and loops: constraints on translations, and the flags for violations."""

from pathlib import Path

import pytest

from samples import write_lines
from transformer.cli.terminology import terminology_of
from transformer.decoding import Search, repeats_itself
from transformer.errors import ConfigError, DataError
from transformer.pipelines.auto import load
from transformer.pipelines.translation import terminology as module
from transformer.pipelines.translation.terminology import Terminology, TerminologyCounts, beside_flag, read_glossary
from transformer.pipelines.translation.translator import Translator
from transformer.text.spans import PATTERNS

EVERYTHING = Terminology(protected=list(PATTERNS))


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("Hello {name}, you owe %s.", ["{name}", "%s"]),
        ("100% sure: %d of %(total)d, %1$s", ["100", "%d", "%(total)d", "%1$s"]),
        ("<b>bold</b> &amp; <br/> a < b > c", ["<b>", "</b>", "&amp;", "<br/>"]),
        ("see https://a.org/x?y=1, or (www.b.de).", ["https://a.org/x?y=1", "www.b.de"]),
        ("see ‹http://a.org/b/›, “http://a.org/c”.", ["http://a.org/b/", "http://a.org/c"]),
        ("<b>a_1.txt</b> <i>max_length</i>", ["<b>", "a_1.txt", "</b>", "<i>", "max_length", "</i>"]),
        ("write to a.b@c.org!", ["a.b@c.org"]),
        ("at 10:30 on 1.2.2024 for 1,000.50 in B2", ["10:30", "1.2.2024", "1,000.50", "B2"]),
        ("v1.2.3, sha256, EPUB3 and git-log(1), not 2nd, 10am or f(x)", ["v1.2.3", "sha256", "EPUB3", "git-log(1)"]),
        ("我有3个苹果。请打开文件a.txt。 файл1.txt", ["файл1.txt"]),
        ("${user} {{x y}} {0} %PATH%", ["${user}", "{{x y}}", "{0}", "%PATH%"]),
        ("at 12:30pm 2.5kg of %%s or %.2f and %05d, a <b and c> d", ["%.2f", "%05d"]),
        ('<a href="x y" id=z> {user-name} &nbsp; &#x27;', ['<a href="x y" id=z>', "{user-name}", "&nbsp;"]),
        ("nothing here", []),
        ("&Save _As E&xit Sa&ve R&D AT&T Q&A drag&drop my_var _x_ __init__ a & b", ["&", "_", "&", "&", "my_var"]),
        ("@anna #summer a@b.org C# #1 [@me]", ["@anna", "#summer", "a@b.org", "1", "@me"]),
        (
            "/etc/hosts ~/x ./a/b C:\\Temp\\a.txt and/or he/she km/h a/b.",
            ["/etc/hosts", "~/x", "./a/b", "C:\\Temp\\a.txt"],
        ),
        ("src/a/b.py, ‹README.md›: (r_1.pdf). he/she. Yes.Py so.we", ["src/a/b.py", "README.md", "r_1.pdf"]),
        ("300 B.C. and 5 b.c., main.c", ["300", "5", "main.c"]),
        ("MAX_SIZE f() os.join() E_xit f(x) --no-edit x --but y", ["MAX_SIZE", "f()", "os.join()", "--no-edit"]),
        ("100 % or 5 % d, one.\\nTwo\\n\\nThree", ["100", "5", "\\n", "\\n\\n"]),
        ("👨‍👩‍👧 🇩🇪 ❤️ 👍🏽 1️⃣ © ™ ↔", ["👨‍👩‍👧", "🇩🇪", "❤️", "👍🏽", "1️⃣"]),
        ("see example.com/a. The end.it was a.m.", ["example.com/a"]),
    ],
)
def test_protected_spans(line: str, spans: list[str]) -> None:
    """Catches truncated spans, spans that include punctuation, and words that are not placeholders."""
    assert EVERYTHING.protected_spans(line) == spans


def test_only_the_chosen_kinds_are_protected() -> None:
    """Catches numbers that are required although only tags are protected."""
    assert Terminology(protected=["tags"]).protected_spans("<b>7</b> %s") == ["<b>", "</b>"]
    kinds = "accelerators, emoji, entities, escapes, identifiers, mentions"
    with pytest.raises(ConfigError, match=f"protected='words' is unknown; choose from {kinds}"):
        Terminology(protected=["words"])


def test_terms_are_whole_words_and_the_longest_counts() -> None:
    """Catches "art" matched in "party", and "machine" where "machine learning" is the term."""
    terminology = Terminology(glossary=[("art", "Kunst"), ("machine", "Maschine"), ("machine learning", "ML")])
    assert terminology.terms("the art of machine learning") == [("art", "Kunst"), ("machine learning", "ML")]
    assert terminology.terms("a party") == []
    assert terminology.terms("machine and machine") == [("machine", "Maschine")]


def test_violations_name_what_is_wrong() -> None:
    """Catches a span that is duplicated, lost or invented without a flag, and a term likewise."""
    terminology = Terminology(["schlecht"], [("art", "Kunst")], list(PATTERNS))
    assert terminology.violations("art for {x} and {x}", "Kunst für {x} und {x}") == []
    assert terminology.changed_spans("art {x} {x} 5", "Art {x} 7 schlecht") == (["{x}", "5"], ["7"])
    assert terminology.violations("art {x} {x} 5", "Art {x} 7 schlecht") == [
        "'art' is not translated as 'Kunst'", "the banned phrase 'schlecht' occurs",
    ]  # fmt: skip
    counts = TerminologyCounts()
    counts.add(terminology, "art {x} {x} 5", "Art {x} 7")
    assert str(counts) == "glossary: 0 of 1 terms in place; protected: 1 of 3 spans"


def test_a_glossary_of_comma_separated_values(tmp_path: Path) -> None:
    """Catches a comma or a quotation mark of a term that is read as syntax, and the other way round."""
    path = write_lines(tmp_path / "terms.csv", ["# comment, too", 'a,"b, ""c"""', "", " d ,e"])
    assert (
        terminology_of(None, path, "").terminology.glossary == Terminology([], [("a", 'b, "c"'), ("d", "e")]).glossary
    )
    write_lines(path, ["a,b", "c"])
    with pytest.raises(DataError, match=r"terms.csv, line 2: expected a source term, .* \(in a .csv, a comma\)"):
        terminology_of(None, path, "")


def test_a_glossary_is_read_and_its_mistakes_are_named() -> None:
    """Catches a term that silently overrides another, or a line that is silently skipped."""
    assert read_glossary(["# comment", "a\tb", "", " c d \t e"], "terms.tsv") == [("a", "b"), ("c d", "e")]
    with pytest.raises(DataError, match=r"terms.tsv, line 2: expected a source term, a tab and a target term"):
        read_glossary(["a\tb", "c d"], "terms.tsv")
    with pytest.raises(
        DataError, match=r"terms.tsv, line 2: 'a' is translated as 'b' in an earlier line; keep one of the two"
    ):
        read_glossary(["a\tb", "a\tc"], "terms.tsv")
    with pytest.raises(DataError, match="an empty phrase or term has no effect"):
        Terminology([" "])
    with pytest.raises(DataError, match="the term 'rote Kunst' is required, but 'Kunst' is banned"):
        Terminology(["Kunst"], [("red art", "rote Kunst")])


def test_terms_and_banned_phrases_are_not_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a request with thousands of both that takes minutes, and a phrase found across two terms."""
    contains, calls = module._contains, list[str]()
    monkeypatch.setattr(module, "_contains", lambda text, phrase: calls.append(phrase) or contains(text, phrase))
    Terminology(["z", "b0\nb1", *(f"c{i}" for i in range(50))], [(f"a{i}", f"b{i}") for i in range(50)])
    assert len(calls) <= 52 + 50


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
    """Catches loops of longer periods or in the middle that are missed, and a repetition too few that counts."""
    assert repeats_itself(tokens) == loops


def test_banned_words_and_terms_through_the_translator(tiny_run: Path) -> None:
    """Catches phrases tokenized for the wrong position, and terms of a line that affect its neighbours."""
    lines = ["one two three", "seven", "", "nine {x} two"]
    unconstrained = load(tiny_run).translations(lines)
    word = next(word for translation in unconstrained for word in translation.text.split())
    banned = load(tiny_run, terminology=Terminology(banned=[word]))
    with_ban = banned.translations(lines)
    for spelling in (banned.tokenizers.target.encode(word), banned.tokenizers.target.encode(f"({word}")[1:]):
        spelled = [" ".join(map(str, part)) for translation in with_ban for part in translation.alternatives[0].tokens]
        assert not any(" ".join(map(str, spelling)) in part for part in spelled)
    assert [translation.text for translation in with_ban] != [translation.text for translation in unconstrained]
    with_terms = load(tiny_run, terminology=Terminology(glossary=[("seven", "two two")])).translations(lines)
    assert " two two" in f" {with_terms[1].text}", "a term is a word of its own"
    assert [with_terms[i].text for i in (0, 2, 3)] == [unconstrained[i].text for i in (0, 2, 3)]


def test_required_spans_override_banned_words(tiny_run: Path) -> None:
    """Catches a span that is suppressed because of a banned word in it, or because it would be repeated."""
    lines = ["one {two} three {two}", "seven {two}"]
    terminology = Terminology(["two", "{two}"])
    translations = load(tiny_run, search=Search(8, no_repeat_ngram=2), terminology=terminology).translations(lines)
    assert [translation.text.count("{two}") for translation in translations] == [2, 1]
    assert not any("banned" in flag for translation in translations for flag in translation.flags)


def test_kept_spans_cost_no_words(tiny_run: Path) -> None:
    """Catches a span that is lost where the model copies no substitute, and one that is put in twice."""
    lines = ["one %s two %s three", "seven 4 nine", "<b>{a}</b> one", "%1 two: &five", "(%(n)s) one www.a.org"]
    for line, translation in zip(lines, load(tiny_run).translations(lines), strict=True):
        assert Terminology().count_spans(translation.text) == Terminology().count_spans(line), translation


def test_phrases_are_normalized_like_the_target(tmp_path: Path) -> None:
    """Catches a term that occurs in lower case, like all output of the model, and is flagged as missing."""
    terminology = Terminology(["Stadt"], [("Berlin", "Hauptstadt Berlin")], normalize=str.lower)
    assert terminology.terms("in Berlin") == [("Berlin", "hauptstadt berlin")]
    assert terminology.violations("in Berlin", "in hauptstadt berlin") == []
    assert terminology.violations("in", "stadt") == ["the banned phrase 'Stadt' occurs"]


def test_violations_are_about_whole_words() -> None:
    """Catches a ban of "in" that matches "ein", a term matched within another word, and a ban within a placeholder."""
    terminology = Terminology(["in", "name"], [("dog", "Hund"), ("child", "Kind")], ["placeholders"])
    assert terminology.violations("{name}", "ein {name}") == []
    assert terminology.violations("dog", "die Hunde (Kind) in") == [
        "'dog' is not translated as 'Hund'", "the banned phrase 'in' occurs"
    ]  # fmt: skip
    counts = TerminologyCounts()
    counts.add(terminology, "dog child", "Schäferhund (Kind)")
    assert str(counts) == "glossary: 1 of 2 terms in place; protected: 0 of 0 spans"
    counts.add(terminology, "dog", "Hund", [beside_flag("dog", "Hund")])
    assert str(counts).startswith("glossary: 1 of 3 terms"), "a term that stands beside other words is not in place"


def test_the_old_keyword_of_the_terminology_still_works(tiny_run: Path) -> None:
    """Catches a rename that breaks callers, or that passes without a deprecation warning."""
    terminology = Terminology(["two"])
    with pytest.warns(DeprecationWarning, match="lexicon is deprecated; use terminology instead"):
        translator = load(tiny_run, lexicon=terminology)
    assert translator.terminology.banned == terminology.banned
    with pytest.raises(ConfigError, match="give terminology alone"):
        load(tiny_run, lexicon=terminology, terminology=terminology)
    with pytest.warns(DeprecationWarning, match="lexicon"):
        again = Translator(translator.model, translator.tokenizers, max_source_tokens=20, lexicon=terminology)
    assert again.terminology.banned == terminology.banned


def test_space_and_invisible_characters_do_not_hide_a_term() -> None:
    """Catches a term that is silently not applied because of a no-break space or a soft hyphen."""
    terminology = Terminology(glossary=[("big  cakes", "Kuchen"), ("woman", "Frau")])
    for line in ("big cakes", "big\u00a0cakes", "big  cakes", "big\u200b cakes\u00ad"):
        assert terminology.terms(line) == [("big cakes", "Kuchen")]
    assert terminology.terms("A wo\u00adman sells.") == [("woman", "Frau")]
    assert terminology.terms("bigcakes womans") == []
    assert terminology.near_terms("Woman, big  Cakes, womans' woman manwoman") == [
        ("Woman", "woman"), ("womans", "woman"), ("big Cakes", "big cakes"),
    ]  # fmt: skip
    assert Terminology(glossary=[("car", "Auto"), ("Hund", "dog")]).near_terms("Hunde care") == [("Hunde", "Hund")]
    counts = TerminologyCounts()
    counts.add(terminology, "A wo\u00adman, big\u00a0cakes", "Frau")
    assert str(counts).startswith("glossary: 1 of 2 terms")
    with pytest.raises(DataError, match="'big cakes' is translated as 'x' in an earlier line"):
        read_glossary(["big cakes\tx", "big\u00a0cakes\ty"], "terms")


def test_brackets_in_pairs_belong_to_an_address() -> None:
    """Catches an address whose last bracket is lost, and a bracket around an address that is taken as its part."""
    terminology = Terminology(protected=["urls"])
    line = "(see https://a.b/Foo_(bar), http://a.b/c) or <ftp://x.y/z>; mailto:me@x.org, www.a.b/(c/d."
    expected = ["https://a.b/Foo_(bar)", "http://a.b/c", "ftp://x.y/z", "mailto:me@x.org", "www.a.b/(c/d"]
    assert terminology.protected_spans(line) == expected
