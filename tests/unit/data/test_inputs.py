"""Reading every corpus format, and the messages about files that cannot be read."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from samples import compressed, tmx, unit, write_lines
from transformer.data.config import DataConfig
from transformer.data.inputs import read_files, training_files
from transformer.data.labelled import read_rows
from transformer.data.readers import PairCounts
from transformer.data.tables import MAX_ROW_CHARACTERS
from transformer.errors import ConfigError, DataError
from transformer.run.recipe import parse_recipe
from transformer.text.lines import MAX_LINE_CHARACTERS

PAIRS = [("a dog", "ein Hund"), ("", "leer"), ('say "no"', 'sag "nein"'), ("x\u2028y", "é\x0bz")]


def read(path: Path, counts: PairCounts | None = None, **settings: object) -> list[tuple[str, str]]:
    return list(read_files(training_files(DataConfig(pairs=str(path), **settings)), counts))


def tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_compressed_text_is_read_like_plain_text(tmp_path: Path, ending: str) -> None:
    """Catches a reader that ends lines at other characters than line feeds, or loses an unterminated last line."""
    sides = ("one\r\ntwo\u2028\n\nlast", "eins\nzwei\n\nletzte")
    files = [compressed(tmp_path / f"{n}.txt{ending}", side.encode()) for n, side in enumerate(sides)]
    counts = PairCounts()
    inputs = training_files(DataConfig(source=str(files[0]), target=str(files[1])))
    assert list(read_files(inputs, counts)) == [
        ("one", "eins"), ("two\u2028", "zwei"), ("", ""), ("last", "letzte"),
    ]  # fmt: skip
    assert counts.source.carriage_returns == 1


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("end", [0, 20, -1])
def test_a_damaged_archive_is_refused_by_name(tmp_path: Path, ending: str, end: int) -> None:
    """Catches a truncated archive that is read as a complete one."""
    path = compressed(tmp_path / f"x.tsv{ending}", tsv([(f"source {n * n}", f"target {n}") for n in range(999)]))
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(DataError, match=rf"x\.tsv\{ending}: damaged or cut short \(.*\); compress it again"):
        read(path)


@pytest.mark.parametrize("name", ["none.tsv", "none.tsv.zst", "none.tsv.gz", "none.parquet", "none.tmx"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """Catches a traceback of a library."""
    with pytest.raises(DataError, match=r"none\..*: No such file or directory; check the (path|file)"):
        read(tmp_path / name, languages=("en", "de"))


def test_several_files_are_read_in_order(tmp_path: Path) -> None:
    """Catches a source file paired with the target of another, and weights of the wrong file."""
    paths = [str(write_lines(tmp_path / name, [name, name * 2])) for name in ("a", "A", "b", "B")]
    table = compressed(tmp_path / "c.tsv", b"c\tC\n")
    settings = DataConfig(source=paths[::2], target=paths[1::2], pairs=str(table), weights=(1, 2, 0.5))
    inputs = training_files(settings)
    assert list(read_files(inputs)) == [("a", "A"), ("aa", "AA"), ("b", "B"), ("bb", "BB"), ("c", "C")]
    assert [(file.name, file.weight) for file in inputs] == [(paths[0], 1), (paths[2], 2), (str(table), 0.5)]


def test_tsv_columns_by_number_and_name(tmp_path: Path) -> None:
    """Catches quotation marks parsed as syntax, columns counted from 0, and a header read as a pair."""
    assert read(compressed(tmp_path / "x.tsv", tsv(PAIRS))) == PAIRS
    wide = compressed(tmp_path / "wide.tsv", b"id\tde\ten\n7\tHund\tdog\n")
    assert read(wide, columns=(3, 2)) == [("en", "de"), ("dog", "Hund")]
    assert read(wide, columns=("en", "de")) == [("dog", "Hund")]
    with pytest.raises(DataError, match=r"wide.tsv: no column 'fr' in its first line \(id, de, en\)"):
        read(wide, columns=("en", "fr"))
    short = compressed(tmp_path / "short.tsv", b"a\tb\nc\n")
    with pytest.raises(DataError, match=r"short.tsv, line 2: 1 column, but two are expected; repair"):
        read(short)


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
def test_a_row_with_more_columns_is_refused(tmp_path: Path, name: str) -> None:
    """Catches a text with a tab or comma that is paired with its own second half."""
    sign = "\t" if name == "x.tsv" else ","
    rows = [[f"cat {n}", f"Katze {n}"] for n in range(9)]
    path = write_lines(tmp_path / name, [sign.join(row) for row in [*rows, ["Price:", "5", "Preis:", "5"]]])
    with pytest.raises(
        DataError, match=rf"{name}, line 10: 4 columns, but two are expected; repair the line"
    ) as caught:
        read(path)
    assert "data.columns" not in str(caught.value), "the first two columns alone would be refused too"
    with pytest.raises(DataError, match=rf"{name}, line 10: 4 columns, but the first line has 2"):
        read(path, columns=(2, 1))
    path = write_lines(tmp_path / name, [sign.join(row) for row in [["a", "b", "c"], ["d", "e", "f"]]])
    with pytest.raises(DataError, match=r"line 1: 3 columns, but two are expected; choose .*--set data\.columns=1,2"):
        read(path)
    assert read(path, columns=(1, 2)) == [("a", "b"), ("d", "e")]
    single = write_lines(tmp_path / f"single-{name}", [sign.join("ab"), "c"])
    with pytest.raises(DataError, match=rf"{name}, line 2: 1 column, but two are expected; repair the line$"):
        read(single)
    with pytest.raises(DataError, match=rf"{name}, line 2: 1 column, but data\.columns=\[1, 2\] needs 2; "):
        read(single, columns=(1, 2))
    assert read(path, columns=(3, 1)) == [("c", "a"), ("f", "d")]
    assert read(path, columns=("c", "b")) == [("f", "e")]
    twice = write_lines(tmp_path / name, [sign.join(["a", "b", "a"]), sign.join("123")])
    with pytest.raises(DataError, match=f"{name}: 2 columns are named 'a'; rename all but one"):
        read(twice, columns=("a", "b"))


def test_csv_is_what_the_csv_module_writes(tmp_path: Path) -> None:
    """Catches quotation marks, commas and line breaks of quoted texts that become columns, rows or text."""
    pairs = [*PAIRS, ("one, two", '"'), ("a\nb", "c"), ('""', ","), (" x ", "'y'")]
    with (tmp_path / "x.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(pairs)
    expected = [*pairs[:5], ("a b", "c"), *pairs[6:]]
    assert read(tmp_path / "x.csv") == expected
    assert read(compressed(tmp_path / "y.csv.gz", (tmp_path / "x.csv").read_bytes())) == expected
    named = compressed(tmp_path / "z.csv", b"target,source\r\n\r\nb,a\r\n")
    assert read(named) == [("a", "b")], "the usual names are a header"
    assert read(named, columns=(1, 2)) == [("target", "source"), ("b", "a")]
    assert list(read_rows([named], None, ("source", "target"))) == [("a", "b")]


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
@pytest.mark.parametrize(
    ("first", "is_header"),
    [
        (("English", "German"), True), (("en", "de"), True), (("eng", "zh-Hans"), True), (("Deutsch", "Русский"), True),
        (("English", "Englisch"), False), (("de", "de"), False), (("en", "x"), False), (("dog", "Hund"), False),
        (("src_text", "tgt_text"), True), (("SRC", "tgt"), True), (("tgt", "src"), False), (("Input", "x"), False),
        (("no", "so what"), False), (("Yes", "Ja"), False), (("English\0", "a\0b"), False),
    ],
)  # fmt: skip
def test_names_of_languages_are_a_header(tmp_path: Path, name: str, first: tuple[str, str], *, is_header: bool) -> None:
    """Catches a header that becomes a pair, and a first pair of words that is lost."""
    rows = [first, ("a dog", "ein Hund")]
    path = write_lines(tmp_path / name, [("\t" if name == "x.tsv" else ",").join(row) for row in rows])
    counts = PairCounts()
    assert read(path, counts) == rows[is_header:]
    assert counts.headers == is_header
    assert read(path, columns=(1, 2)) == rows
    assert list(read_rows([path], None, ("text", "label"))) == rows, "a label may be a language"


@pytest.mark.parametrize("content", ["a,b\n\x1c,c\nd,\x1c\ne,f\x1c\n", "a,\x1c", '"\x1c",b\n"a\n\x1c",c'])
def test_separators_of_ascii_are_text(tmp_path: Path, content: str) -> None:
    """Catches a character of the file that is taken for its end, or for a quotation mark that is never closed."""
    rows = csv.reader(io.StringIO(content, newline=""))
    expected = [(source.replace("\n", " "), target.replace("\n", " ")) for source, target in rows]
    assert read(compressed(tmp_path / "x.csv", content.encode())) == expected


def test_a_row_of_one_separator_does_not_end_a_file(tmp_path: Path) -> None:
    """Catches a corpus that is silently cut in the middle."""
    with pytest.raises(DataError, match=r"x\.csv, line 3: 1 column"):
        read(compressed(tmp_path / "x.csv", b"a,b\n" * 2 + b"\x1c\n" + b"a,b\n" * 20))


def test_csv_that_is_none_is_refused(tmp_path: Path) -> None:
    """Catches an open quotation mark that swallows the rest of the file."""
    for content, message in (
        (b'a,b\nc,"d\ne,f\n', "line 2: a quotation mark is never closed"),
        (b'a,b\n"c\n\n",d\n"e,f', "line 5: a quotation mark is never closed"),
        (b"a,b\nc\rx,d\n", "line 2: not CSV, a text has a carriage return"),
    ):
        with pytest.raises(DataError, match=f"x.csv, {message}"):
            read(compressed(tmp_path / "x.csv", content))


def test_an_overlong_text_is_left_out_and_counted(tmp_path: Path) -> None:
    """Catches a huge line that a tokenizer gets, and a row that is lost without a trace."""
    long, longest = "x" * (MAX_LINE_CHARACTERS + 1), "ü" * MAX_LINE_CHARACTERS
    row = "z" * (MAX_ROW_CHARACTERS + 1)
    pairs = [("a", "b"), (long, "c"), ("d", longest), ("e", long)]
    table = [f"{source}\t{target}" for source, target in pairs]
    objects = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    body = "".join(unit(("en", source), ("de", target)) for source, target in pairs)
    sides = [
        compressed(tmp_path / f"{n}.txt.gz", "\n".join(side).encode())
        for n, side in enumerate(zip(*pairs, strict=True))
    ]
    files = {
        compressed(tmp_path / "x.tsv.zst", "\n".join([*table, row]).encode()): 3,
        compressed(tmp_path / "x.csv", "\n".join(table).replace("\t", ",").encode()): 2,
        compressed(tmp_path / "x.jsonl", "\n".join([*objects, row]).encode()): 3,
        compressed(tmp_path / "x.tmx", tmx(body)): 2,
        tmp_path / "x.parquet": 2,
    }
    parquet.write_table(pa.table({"source": [s for s, _ in pairs], "target": [t for _, t in pairs]}), [*files][-1])
    for path, too_long in files.items():
        counts = PairCounts()
        languages = {"languages": ("en", "de")} if path.suffix == ".tmx" else {}
        assert read(path, counts, **languages) == [("a", "b"), ("d", longest)], path
        assert (counts.too_long, counts.left_out) == (too_long, too_long), path
    counts = PairCounts()
    settings = DataConfig(source=str(sides[0]), target=str(sides[1]))
    assert list(read_files(training_files(settings), counts)) == [("a", "b"), ("d", longest)]
    assert (counts.too_long, counts.source.lines) == (2, 4)
    with pytest.raises(DataError, match=r"y.tsv holds no pair that can be used: 1 longer than 262,144 characters"):
        read(write_lines(tmp_path / "y.tsv", [row]))


def test_semicolons_separate_where_there_are_no_commas(tmp_path: Path) -> None:
    """Catches the CSV of other locales that is refused, and a text with a semicolon that becomes two columns."""
    rows = write_lines(tmp_path / "x.csv", ["en;de", "Well, yes.;Na ja.", '"a; b";c'])
    assert read(rows) == [("Well, yes.", "Na ja."), ("a; b", "c")]
    assert read(write_lines(tmp_path / "y.csv", ["a; b,c"])) == [("a; b", "c")]


def test_texts_within_an_object_of_translations(tmp_path: Path) -> None:
    """Catches a data set of translations that is refused, languages swapped, and others than those asked for."""
    row = {"id": 1, "translation": {"en": "a", "de": "b"}}
    jsonl = write_lines(
        tmp_path / "x.jsonl", [json.dumps(row), json.dumps({**row, "translation": {"de": "d", "en": "c"}})]
    )
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "x.parquet")
    assert read(jsonl) == [("a", "b"), ("c", "d")]
    assert read(jsonl, languages=("de", "en")) == [("b", "a"), ("d", "c")]
    assert read(tmp_path / "x.parquet", languages=("de", "en")) == [("b", "a")]
    assert read(tmp_path / "x.parquet") == [("a", "b")]
    for path in (jsonl, tmp_path / "x.parquet"):
        with pytest.raises(DataError, match=r"no .*'fr'"):
            read(path, languages=("fr", "de"))
    three = write_lines(tmp_path / "y.jsonl", [json.dumps({"translation": {"en": "a", "de": "b", "fr": "c"}})])
    with pytest.raises(DataError, match="no 'source'"):
        read(three)


def test_jsonl_names_dots_null_and_line_breaks(tmp_path: Path) -> None:
    """Catches null read as the word None, and a line break that would shift every line after it."""
    rows = [{"translation": {"en": s, "de": t}} for s, t in PAIRS]
    rows += [{"translation": {"en": None, "de": "a\nb\r\nc"}}]
    path = compressed(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    counts = PairCounts()
    assert read(path, counts, columns=("translation.en", "translation.de")) == [*PAIRS, ("", "a b c")]
    assert counts.line_breaks == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a"', r"line 2: not JSON \(.*\); write one object per line"),
        ('["a", "b"]', "line 2: no 'source'; set data.columns"),
        ('{"source": "a"}', "line 2: no 'target'; set data.columns"),
        ('{"source": "a", "target": 7}', "line 2: 'target' is not a text"),
        ('{"source": "a", "target": "b", "source": "c"}', "line 2: 'source' occurs twice; keep one of them"),
        (r'{"source": "\ud800", "target": "b"}', "line 2: 'source' holds half a character"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_jsonl_that_is_none_is_refused(tmp_path: Path, line: str, message: str) -> None:
    """Catches a row that is silently skipped."""
    path = write_lines(tmp_path / "x.jsonl", ['{"source": "a", "target": "b"}', line])
    with pytest.raises(DataError, match=rf"x\.jsonl, {message}"):
        read(path)


def test_parquet_columns_and_nested_ones(tmp_path: Path) -> None:
    """Catches null read as the word None, and two fields of one column mixed up."""
    texts = [*PAIRS, (None, "b")]
    nested = pa.table({"translation": [{"de": t, "en": s} for s, t in texts], "id": range(5)})
    parquet.write_table(nested, tmp_path / "x.parquet", row_group_size=2)
    assert read(tmp_path / "x.parquet", columns=("translation.en", "translation.de")) == [*PAIRS, ("", "b")]
    flat = pa.table({"en": [s for s, _ in PAIRS], "de": pa.array([t for _, t in PAIRS], pa.large_string())})
    parquet.write_table(flat, tmp_path / "y.parquet")
    assert read(tmp_path / "y.parquet", languages=("de", "en")) == [(t, s) for s, t in PAIRS]
    with pytest.raises(DataError, match=r"y.parquet: no column 'source' \(en, de\); set data.columns"):
        read(tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"x.parquet: column 'id' holds int64, not texts"):
        read(tmp_path / "x.parquet", columns=("id", "translation.en"))
    content = (tmp_path / "y.parquet").read_bytes()
    for damaged in (content[:-9], b"", content[:4] + bytes(60) + content[64:]):
        (tmp_path / "y.parquet").write_bytes(damaged)
        with pytest.raises(DataError, match=r"y.parquet: .*damaged or cut short"):
            read(tmp_path / "y.parquet", columns=("en", "de"))


def test_parquet_with_two_columns_of_one_name(tmp_path: Path) -> None:
    """Catches a traceback, and one of the two that is chosen silently."""
    columns = [pa.array(["a"]), pa.array(["b"]), pa.array(["c"]), pa.array(["d"])]
    parquet.write_table(pa.Table.from_arrays(columns, names=["en", "en", "de", "fr"]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: 2 columns are named 'en'; rename all but one"):
        read(tmp_path / "x.parquet", columns=("en", "de"))
    assert read(tmp_path / "x.parquet", columns=("fr", "de")) == [("d", "c")]


def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Catches bytes that end a run with a traceback after an hour."""
    column = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    parquet.write_table(pa.table({"source": column, "target": ["b"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: not a Parquet file, damaged or cut short \(.*UTF-8"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x.tsv", "x.jsonl"])
def test_a_file_without_a_pair_is_refused(tmp_path: Path, name: str) -> None:
    """Catches a run without data."""
    with pytest.raises(DataError, match=rf"{name} holds no pair; give a file with one sentence"):
        read(write_lines(tmp_path / name, []))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, r"data.source is missing; name data.source and data.target, or data.pairs"),
        ({"source": "a"}, "data.target is missing; give both sides, or a file of both as data.pairs"),
        ({"target": ["a", "b"]}, "data.source is missing; give both sides"),
        (
            {"source": ["a", "b"], "target": ["c"]},
            "data.source names 2 files, data.target 1; give each source file its translation",
        ),
        ({"pairs": "x.tsv", "weights": [1, 2]}, "data.weights has 2 numbers for 1 file; give one for each"),
        ({"pairs": "x.tsv", "weights": [0]}, "greater than 0"),
        ({"pairs": "x.doc.gz"}, r"data.pairs='x.doc.gz' ends in none of .tsv, .jsonl, .parquet, .tmx"),
        ({"pairs": "x.tmx.zst"}, r"data.languages is missing, which x.tmx.zst needs"),
        ({"pairs": "x.jsonl", "columns": [1, 2]}, r"data.columns=\[1, 2\] are numbers, but x.jsonl has names"),
        ({"pairs": "x.tsv", "columns": [0, 1]}, "greater than or equal to 1"),
    ],
)
def test_settings_that_name_no_corpus_are_refused(data: dict[str, object], message: str) -> None:
    """Catches a mistake that is only detected after an hour of reading, or never."""
    with pytest.raises(ConfigError, match=message):
        parse_recipe({"data": data})
