"""Reading every corpus format, and the messages about files that cannot be read."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from samples import write_lines
from transformer.data.config import DataConfig
from transformer.data.inputs import read_files, training_files
from transformer.data.readers import PairCounts
from transformer.errors import ConfigError, DataError
from transformer.run.recipe import parse_recipe

PAIRS = [("a dog", "ein Hund"), ("", "leer"), ('say "no"', 'sag "nein"'), ("x\u2028y", "é\x0bz")]


def compressed(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content, mtime=0))
    elif path.suffix == ".zst":
        path.write_bytes(pa.Codec("zstd").compress(content, asbytes=True))
    else:
        path.write_bytes(content)
    return path


def read(path: Path, counts: PairCounts | None = None, **settings: object) -> list[tuple[str, str]]:
    return list(read_files(training_files(DataConfig(pairs=str(path), **settings)), counts))


def tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def tmx(body: str, doctype: str = "") -> bytes:
    return f'<?xml version="1.0"?>\n{doctype}<tmx version="1.4"><header/><body>{body}</body></tmx>'.encode()


def unit(*segments: tuple[str, str]) -> str:
    variants = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in segments)
    return f"<tu>{variants}</tu>"


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
    wide = compressed(tmp_path / "wide.tsv", b"id\tde\ten\n7\tHund\tdog\textra\n")
    assert read(wide, columns=(3, 2)) == [("en", "de"), ("dog", "Hund")]
    assert read(wide, columns=("en", "de")) == [("dog", "Hund")]
    with pytest.raises(DataError, match=r"wide.tsv: no column 'fr' in its first line \(id, de, en\)"):
        read(wide, columns=("en", "fr"))
    short = compressed(tmp_path / "short.tsv", b"a\tb\nc\n")
    with pytest.raises(DataError, match=r"short.tsv, line 2: 1 columns, but data.columns=\[1, 2\] needs 2"):
        read(short)


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


def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Catches bytes that end a run with a traceback after an hour."""
    column = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    parquet.write_table(pa.table({"source": column, "target": ["b"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: not a Parquet file, damaged or cut short \(.*utf-8"):
        read(tmp_path / "x.parquet")


def test_tmx_takes_two_languages_and_leaves_codes_out(tmp_path: Path) -> None:
    """Catches codes read as text, a missed variant of a language, and a language with the prefix of another."""
    body = (
        unit(("en-GB", "a <bpt i='1'>&lt;b&gt;</bpt>dog<ept i='1'>&lt;/b&gt;</ept> &amp; <hi>cat</hi>"), ("de", "Hund"))
        + unit(("fr", "chien"), ("DE", "nur\ndeutsch"))
        + unit(("en", "one"), ("de", "eins"), ("de-AT", "ans"), ("end", "x"))
    )
    expected = [("a dog & cat", "Hund"), ("", "nur deutsch"), ("one", "eins"), ("one", "ans")]
    for ending in ("", ".gz"):
        path = compressed(tmp_path / f"x.tmx{ending}", tmx(body))
        assert read(path, languages=("en", "de")) == expected
    old = compressed(tmp_path / "old.tmx", tmx(unit(("en", "a"), ("de", "b"))).replace(b"xml:lang", b"lang"))
    assert read(old, languages=("en", "de")) == [("a", "b")]
    wide = tmp_path / "wide.tmx"
    wide.write_bytes(
        tmx(unit(("en", "a"), ("de", "ü"))).decode().replace('"1.0"', '"1.0" encoding="UTF-16"', 1).encode("utf-16")
    )
    assert read(wide, languages=("en", "de")) == [("a", "ü")]


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
FILE = '<!DOCTYPE tmx [<!ENTITY c SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("doctype", [BOMB, FILE])
def test_entities_are_refused(tmp_path: Path, doctype: str) -> None:
    """Catches an entity bomb and the reading of other files."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "&c;"), ("de", "b")), doctype))
    with pytest.raises(DataError, match=r"x.tmx, line 2: the document type declares .*; remove the DOCTYPE"):
        read(path, languages=("en", "de"))


def test_the_usual_document_type_of_tmx_is_read(tmp_path: Path) -> None:
    """Catches a refusal of the document type that translation tools write; it is harmless and never fetched."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "a"), ("de", "b")), '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'))
    assert read(path, languages=("en", "de")) == [("a", "b")]


def test_an_entity_that_is_declared_elsewhere_is_named(tmp_path: Path) -> None:
    """Catches letters that vanish: a parser may ignore entities of a document type that it does not read."""
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "Caf&eacute; noir"), ("de", "b")), doctype))
    with pytest.raises(DataError, match=r"x.tmx, line 2: &eacute; is declared elsewhere, which is not read"):
        read(path, languages=("en", "de"))


def test_a_unit_of_very_many_segments_is_refused(tmp_path: Path) -> None:
    """Catches a small file whose pairs, all combinations of the segments, exhaust memory."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(*[("en", "a"), ("de", "b")] * 101)))
    with pytest.raises(DataError, match="a unit of 101 and 101 segments"):
        read(path, languages=("en", "de"))


def test_xml_that_is_none_is_refused(tmp_path: Path) -> None:
    """Catches a truncated file that is read as a complete one."""
    content = tmx(unit(("en", "a"), ("de", "b")) * 7)
    path = compressed(tmp_path / "x.tmx", content[:-40])
    with pytest.raises(DataError, match=r"x.tmx: not XML, or cut short \(.*line 2.*\)"):
        read(path, languages=("en", "de"))


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
        ({"pairs": "x.tsv", "weights": [1, 2]}, "data.weights has 2 numbers for 1 files; give one for each"),
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
