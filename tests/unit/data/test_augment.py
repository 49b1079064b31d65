"""Augmentation: changed copies of training pairs."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from samples import write_lines
from transformer.data.augment.augmenter import CHANGES, KINDS, Augmenter
from transformer.data.augment.config import AugmentConfig
from transformer.data.augment.names import GIVEN_NAMES
from transformer.data.augment.pair import Pair, without_final_mark
from transformer.data.config import DataConfig
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

LANGUAGES = ("en", "de")
ALL = AugmentConfig(**dict.fromkeys(AugmentConfig.model_fields, 1.0))
PAIRS = [
    ("Tom bought 3 books for $12.50, in 1998.", "Tom kaufte 1998 3 Bücher für 12,50 $."),
    ("Where is the old station, please?", "Wo ist bitte der alte Bahnhof?"),
    ("He walks his dog.", "Er geht mit dem Hund."),
]


def copies(pair: Pair, kind: str, languages: tuple[str, str] = LANGUAGES) -> list[Pair]:
    """Returns copies of a pair that differ in the seed alone."""
    config = AugmentConfig(**{kind: 1.0})
    return [copy for seed in range(40) for _, copy in Augmenter(config, seed, languages).augment([(0, pair)])]


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [("capitals", ("Große Straße.", "Big street."), ("GROSSE STRASSE.", "BIG STREET.")),
     ("title_case", ("Don't go there, Tom.", "Geh nicht."), ("Don't Go There, Tom.", "Geh nicht.")),
     ("lower_case", ("I know Tom.", "Ich kenne Tom."), ("i know tom.", "Ich kenne Tom.")),
     ("final_punctuation", ("Really?!", "Wirklich? "), ("Really", "Wirklich"))],
)  # fmt: skip
def test_a_change_that_draws_nothing(kind: str, pair: Pair, expected: Pair) -> None:
    """Catches targets that are changed where only the source should be, and apostrophes that begin a word."""
    assert {*copies(pair, kind)} == {expected}


@pytest.mark.parametrize(
    ("kind", "pair"),
    [("capitals", ("OK", "OK")), ("lower_case", ("ok", "Gut")), ("final_punctuation", ("Yes", "Ja.")),
     ("typos", ("I am 12", "Ich bin 12")), ("spaces", ("Yes", "Ja")),
     ("numbers", ("He has 1 dog.", "Er hat 1 Hund.")), ("numbers", ("It costs 12 euros.", "Es kostet zwölf Euro.")),
     ("numbers", ("At 8:30 on May 5.", "Am 5. Mai um 8:30 Uhr.")), ("numbers", ("2 and 3", "2 und 4"))],
)  # fmt: skip
def test_a_pair_that_does_not_allow_a_change_gets_none(kind: str, pair: Pair) -> None:
    """Catches copies equal to their pair, and numbers exchanged where the sides differ, or where words must follow."""
    assert copies(pair, kind) == []


def test_numbers_are_exchanged_by_value() -> None:
    """Catches separators of the other language, another number on each side, and a year that becomes a price."""
    for source, target in copies(PAIRS[0], "numbers"):
        books, dollars, year = (source.split()[index].strip("$,.") for index in (2, 5, 7))
        assert source == f"Tom bought {books} books for ${dollars}, in {year}."
        assert target == f"Tom kaufte {year} {books} Bücher für {dollars.replace('.', ',')} $."
        assert 1900 <= int(year) <= 2050
        assert 2 <= int(books) <= 9
    assert len({*copies(PAIRS[0], "numbers")}) > 20


def test_names_are_exchanged_where_both_sides_write_them_alike() -> None:
    """Catches function words that begin both sides, one side that keeps its name, and names that are always known."""
    changed = copies(("Does Tom like Boston?", "Mag Tom Boston?"), "names")
    assert len(changed) > 35
    for source, target in changed:
        name = source.split()[1]
        assert (source, target) == (f"Does {name} like Boston?", f"Mag {name} Boston?")
        assert name != "Tom"
    names = {source.split()[1] for source, _ in changed}
    assert names & {*GIVEN_NAMES}
    assert len(names - {*GIVEN_NAMES}) > 10
    assert copies(("Tom left. He ran.", "Tom ging. Er lief."), "names")
    for pair in (
        ("In 3 days.", "In 3 Tagen."), ("Yes. So be it.", "Ja. So sei es."), ("I like NATO.", "Ich mag NATO."),
        ("See Tom's dog, Tom.", "Sieh den Hund an, Tom."), ("the hotel", "das Hotel"),
        ("I know Мария.", "Ich kenne Мария."),
    ):  # fmt: skip
        assert copies(pair, "names") == [], pair


def test_addresses_are_whole_words() -> None:
    """Catches an address on one side alone, joined to a word, or with letters that addresses lack."""
    changed = copies(PAIRS[1], "addresses")
    assert len({*changed}) == 40
    for source, target in changed:
        written = re.search(r"[\w./:@?&=#-]*(?:://|@|www\.)[\w./:@?&=#-]*[\w]", source)
        assert written
        assert written[0].isascii()
        assert target.count(written[0]) == 1
        for side, text in ((source, PAIRS[1][0]), (target, PAIRS[1][1])):
            rest = side.replace(written[0], "").replace("()", "").replace(":", "")
            assert rest.split() == text.split() or rest.replace(" ", "") == text.replace(" ", "")


def test_a_typo_is_one_wrong_letter() -> None:
    """Catches typos in the first letter, in the target, or in more than one word of a short text."""
    changed = copies(PAIRS[1], "typos")
    assert {target for _, target in changed} == {PAIRS[1][1]}
    for source, _ in changed:
        words = list(zip(source.split(), PAIRS[1][0].split(), strict=True))
        ((typed, meant),) = [(typed, meant) for typed, meant in words if typed != meant]
        assert typed[0] == meant[0]
        assert abs(len(typed) - len(meant)) <= 1
    assert len({*changed}) > 20
    german = [source for source, _ in copies(("zzzzzzzz", "x"), "typos", ("de", "en"))]
    assert not any("x" in source for source in german), "z has other neighbours on a German keyboard"


@pytest.mark.parametrize("kind", ["emoji", "tags", "placeholders"])
def test_both_sides_get_the_same_insertion(kind: str) -> None:
    """Catches an insertion on one side, beside different words, or within a number or an address."""
    for pair in PAIRS:
        for source, target in copies(pair, kind):
            added = Counter(source.split()) - Counter(pair[0].split())
            assert added
            assert source != pair[0]
            assert target != pair[1]
            assert "12." not in source or "12.50" in source
    for source, target in copies(("See Tom at a.b/Tom", "Sieh Tom auf a.b/Tom"), kind):
        assert source.count("a.b/Tom") == target.count("a.b/Tom") == 1


def test_a_final_mark_is_found_in_long_texts() -> None:
    """Catches a search that takes quadratic time where spaces or marks are many: minutes for these texts."""
    assert without_final_mark("Yes" + "!" * 10**6 + "\u201d ") == 3
    assert without_final_mark("a" + " " * 10**6 + "b") == 10**6 + 2
    assert without_final_mark("!" * 10**6 + "a") == 10**6 + 1
    assert without_final_mark("He said (so).") == len("He said (so)")


def test_spaces_stand_beside_punctuation() -> None:
    """Catches words that are joined or divided, and a changed target."""
    changed = copies(PAIRS[1], "spaces")
    assert {source.replace(" ", "") for source, _ in changed} == {PAIRS[1][0].replace(" ", "")}
    assert {*changed} == {
        ("Where is the old station , please?", PAIRS[1][1]), ("Where is the old station,please?", PAIRS[1][1]),
        ("Where is the old station, please ?", PAIRS[1][1]),
    }  # fmt: skip


def test_a_paragraph_joins_consecutive_pairs() -> None:
    """Catches sides that are joined differently, and a paragraph of one pair."""
    augmenter = Augmenter(AugmentConfig(paragraphs=1.0), 1)
    copies_made = augmenter.augment(list(enumerate(PAIRS)))
    assert [kind for kind, _ in copies_made] == ["paragraphs"] * 2
    sources, targets = zip(*PAIRS, strict=True)
    assert {pair for _, pair in copies_made} <= {
        (" ".join(sources[start:end]), " ".join(targets[start:end]))
        for start in range(2)
        for end in range(start + 2, 4)
    }


def test_a_rate_changes_no_other_kind() -> None:
    """Catches copies that depend on the rates of others, and a kind without its rate or without an implementation."""
    numbered = [(n, PAIRS[n % 3]) for n in range(300)]
    together = Augmenter(ALL.model_copy(update=dict.fromkeys(KINDS, 0.5)), 3, LANGUAGES).augment(numbered)
    for kind in KINDS:
        alone = Augmenter(AugmentConfig(**{kind: 0.5}), 3, LANGUAGES).augment(numbered)
        assert alone
        assert alone == [(other, pair) for other, pair in together if other == kind]
    assert {*KINDS} == {*AugmentConfig.model_fields} == {*CHANGES, "paragraphs"}
    few = Augmenter(AugmentConfig(capitals=0.1), 3).augment([(n, PAIRS[0]) for n in range(4000)])
    assert 300 < len(few) < 500


def prepare(folder: Path, name: str, **options: object) -> tuple[Corpus, TokenizerPair]:
    """Prepares the corpus of a folder with augmentation."""
    settings = DataConfig(
        source=str(folder / "s.en"), target=str(folder / "s.de"), augment=ALL, validation_pairs=20,
        source_language="en", target_language="de", **options,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    builder = CorpusBuilder(settings, 1, folder / name)
    tokenizers = builder.train_tokenizers(TokenizerConfig(vocab_size=400))
    return builder.prepare(tokenizers, (60, 60)), tokenizers


def test_a_corpus_gets_changed_copies_in_any_number_of_processes(tmp_path: Path) -> None:
    """Catches copies that depend on the workers, copies of validation pairs, and pairs that no count covers."""
    for side, suffix in ((0, "en"), (1, "de")):
        write_lines(tmp_path / f"s.{suffix}", [f"{PAIRS[n % 3][side][:-1]} {n}." for n in range(400)])
    (alone, tokenizers), (together, _) = prepare(tmp_path, "one"), prepare(tmp_path, "two", workers=2)
    report = alone.report
    assert report.to_dict() == together.report.to_dict()
    assert {*report.augmented} == {*alone.changed_validation} == {*KINDS}
    assert report.read + report.augmented.total() == report.kept + report.held_out + report.dropped.total()
    assert len(alone.train.lengths) == report.kept == report.files[0]["kept"]
    batches = [corpus.train.fetch(np.arange(report.kept)) for corpus in (alone, together)]
    assert batches[0].src.equal(batches[1].src)
    trained = {tokenizers.source.decode([token for token in row if token > 3]) for row in batches[0].src.tolist()}
    held_out = {source.upper() for source, _ in alone.validation_text}
    assert len(held_out) == 20
    assert not trained & held_out
    assert any(source.isupper() for source in trained)
