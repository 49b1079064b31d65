"""The report of a prepared corpus: pairs that readers leave out, and traits of the text."""

import json
from itertools import islice
from pathlib import Path

import pytest

from samples import digit_pairs, tmx, unit, write_lines
from transformer.data.config import DataConfig
from transformer.data.prepare import CorpusBuilder
from transformer.data.quality.traits import TraitCounts
from transformer.data.report import DataReport
from transformer.data.tokens import BLOCK_CHARACTERS, BLOCK_PAIRS, _make_blocks
from transformer.errors import DataError
from transformer.text.lines import MAX_LINE_CHARACTERS
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair


def prepared(folder: Path, **settings: object) -> DataReport:
    builder = CorpusBuilder(DataConfig(validation_pairs=3, **settings), 1, folder / "prepared")
    return builder.prepare(builder.train_tokenizers(TokenizerConfig(vocab_size=300)), (64, 96)).report


def test_an_overlong_line_is_dropped_as_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a huge line that reaches a tokenizer, or that is missing from the account."""
    pairs = digit_pairs(60)
    pairs[7] = "x" * (MAX_LINE_CHARACTERS + 1), "7"
    pairs[9] = "nine", "9 " * MAX_LINE_CHARACTERS
    pairs[11] = "one " * 100, "1 " * 100
    sides = [write_lines(tmp_path / str(n), [pair[n] for pair in pairs]) for n in (0, 1)]
    encode = TokenizerPair.train(lambda: ["one"], lambda: ["1"], TokenizerConfig(vocab_size=300)).source.__class__
    original, longest = encode.encode_flat, 0

    def encode_flat(self: object, texts: list[str]) -> object:
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return original(self, texts)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(encode, "encode_flat", encode_flat)
    report = prepared(tmp_path, source=str(sides[0]), target=str(sides[1]))
    assert (report.read, report.dropped["too long"], longest) == (60, 3, 400)
    assert report.read == report.kept + report.held_out + report.dropped.total()
    assert "pairs read 60: kept" in report.summary()
    assert [file["read"] for file in report.files] == [60]


def test_an_overlong_validation_line_is_refused(tmp_path: Path) -> None:
    """Catches a score over fewer lines than the validation text has."""
    sides = [write_lines(tmp_path / str(n), [pair[n] for pair in digit_pairs(60)]) for n in (0, 1)]
    long = write_lines(tmp_path / "long", ["x" * (MAX_LINE_CHARACTERS + 1)])
    settings = {"source": str(sides[0]), "target": str(sides[1])}
    with pytest.raises(DataError, match="1 longer than 262,144 characters; a score must cover all lines"):
        prepared(tmp_path, **settings, validation_source=str(long), validation_target=str(long))


def test_units_with_forbidden_characters_are_in_the_account(tmp_path: Path) -> None:
    """Catches units that vanish between the memory and the number of pairs read."""
    pairs = digit_pairs(60)
    body = "".join(unit(("en", source), ("de", target)) for source, target in pairs)
    (tmp_path / "x.tmx").write_bytes(tmx(body + unit(("en", "a&#1;"), ("de", "b")) * 2))
    report = prepared(tmp_path, pairs=str(tmp_path / "x.tmx"), languages=("en", "de"), drop_duplicates=False)
    assert (report.read, report.dropped["damaged"]) == (62, 2)
    assert "dropped 2 (empty 0, too long 0, length ratio 0, duplicate 0, damaged 2)" in report.summary()
    assert DataReport.from_dict(json.loads(json.dumps(report.to_dict()))).rows() == report.rows()


def test_traits_are_told_for_each_side(tmp_path: Path) -> None:
    """Catches text that looks the same but is not, of which a model learns both forms, and the wrong side."""
    pairs = [(f"caf\xe9 {n}", f"cafe\u0301 {n}") for n in range(60)]
    pairs[0] = " a\xa0b ", "- x\xady\u200b"
    pairs[1] = "- a", "\u2022 b"
    pairs[2] = "ascii", "caf\xe9"
    sides = [write_lines(tmp_path / str(n), [pair[n] for pair in pairs]) for n in (0, 1)]
    report = prepared(tmp_path, source=str(sides[0]), target=str(sides[1]), drop_duplicates=False)
    assert [text for _, text in report.rows() if "lines with" in text] == [
        "source lines with: no-break or other special spaces 1, spaces at an end 1",
        "target lines with: decomposed characters (not Unicode NFC) 57 (composed in 1 others), soft hyphens 1, "
        "invisible characters 1, list marks that the other side lacks 1",
    ]
    assert not TraitCounts({"composed": [3, 4]}).lines()


def test_blocks_are_bounded_by_pairs_and_characters() -> None:
    """Catches a block of long lines that takes hundreds of times the memory of one of short lines, and a lost pair."""
    short = [(str(n), "x") for n in range(2 * BLOCK_PAIRS + 1)]
    assert [len(block) for block in _make_blocks(short)] == [BLOCK_PAIRS, BLOCK_PAIRS, 1]
    long = "x" * (BLOCK_CHARACTERS // 4)
    mixed = [("a", "b"), (long, long), (long, ""), (long, long), (long * 4, long), ("c", "d")]
    blocks = list(_make_blocks(mixed))
    assert [pair for block in blocks for pair in block] == mixed
    assert [len(block) for block in blocks] == [3, 1, 1, 1]
    assert next(islice(_make_blocks([]), 1), None) is None
