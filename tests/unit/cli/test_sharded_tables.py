"""`--shards` of commands that read columns of Parquet files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from samples import write_lines
from sharded_texts import BLOCK, SOURCES, TARGETS, call, write_models_and_texts
from substitution import substitute
from transformer.errors import ConfigError, DataError

GROUP = 6
"""Number of rows of a row group, which is not a multiple of `BLOCK`."""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models, texts, and a table of these texts with ids; the last but one row has no text."""
    folder = tmp_path_factory.mktemp("models")
    ids = pa.array([f"id {number}" for number in range(40)]).dictionary_encode()
    pairs = [{"de": target, "en": "x"} for target in TARGETS]
    table = pa.table({"n": ids, "text": [*SOURCES, None, "ab"], "pair": [*pairs, None, {"de": "b", "en": None}]})
    parquet.write_table(table, folder / "table.parquet", row_group_size=GROUP)
    return {**write_models_and_texts(folder), "table": folder / "table.parquet"}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes blocks of rows so small that a row group has several."""
    for name in ("score_shards.CHUNK_LINES", "evaluate_shards.CHUNK_LINES", "embed.CHUNK", "classify.CHUNK"):
        substitute(monkeypatch, name, BLOCK)
    substitute(monkeypatch, "text_generation.MAX_WINDOWS", 2)


def rejected(folder: Path) -> list[str]:
    """Returns why rows could not be done."""
    rows = [line for path in sorted(folder.glob("*.rejected.jsonl")) for line in path.read_text().splitlines()]
    return [f"{json.loads(line)['line']}: {json.loads(line)['reason']}" for line in rows]


def test_a_column_of_a_table_is_translated(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches rows that move against their ids, row groups that depend on the shards, and texts that end the job."""
    texts = [*SOURCES, "ab\ncd", None, ""]
    table = pa.table({"n": pa.array(range(41), pa.int16()), "text": texts, "other": [0.5] * 41})
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=5)
    call(
        "translate", paths["translator"], "--input", paths["source"], "--max-tokens", 3, "--output", tmp_path / "whole"
    )
    arguments = ["translate", paths["translator"], "--input", tmp_path / "in.parquet", "--id-column", "n",
                 "--max-tokens", 3]  # fmt: skip
    for shards in (1, 7):
        joined = tmp_path / f"{shards}.parquet"
        call(*arguments, "--output", tmp_path / str(shards), "--shards", shards, "--join", joined)
        assert joined.read_bytes() == (tmp_path / "1.parquet").read_bytes()
        assert len([*(tmp_path / str(shards)).glob("part-*.parquet")]) == shards
    rows = parquet.read_table(tmp_path / "7.parquet")
    assert rows.column_names == ["n", "translation", "confidence"]
    assert rows.column("n").equals(table.column("n"))
    assert parquet.ParquetFile(tmp_path / "7.parquet").num_row_groups == 9
    translations = rows.column("translation").to_pylist()
    assert translations[:38] == (tmp_path / "whole").read_text().splitlines()
    assert translations[38].count("\n") == 1
    assert translations[39:] == [None, ""]
    (reason,) = [line for path in (tmp_path / "7").glob("*.rejected.jsonl") for line in path.read_text().splitlines()]
    assert json.loads(reason)["line"] == 40
    assert "row 40: the text of column 'text' is missing" in json.loads(reason)["reason"]
    for options, message in (
        (["--text-column", "texts"], "has no column 'texts'; choose from n, text, other"),
        (["--text-column", "other"], "column 'other' holds double, not texts; name another one"),
        (["--join", tmp_path / "joined.txt"], "does not end in .parquet"),
        (["--json"], "are for text, but the input is a table"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            call(*arguments, "--output", tmp_path / "other", "--shards", 2, *options)
    with pytest.raises(ConfigError, match="--id-column is for Parquet files"):
        call("translate", paths["translator"], "--input", paths["source"], "--id-column", "n")
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a Parquet file, damaged or cut short"):
        call(*arguments, "--output", tmp_path / "damaged", "--shards", 2)


def of_embed(whole: Path) -> list[tuple[object, ...]]:
    rows = [json.loads(line)["embedding"] for line in whole.read_text().splitlines()]
    return [([pytest.approx(value, abs=1e-6) for value in row],) for row in rows]


def of_classify(whole: Path) -> list[tuple[object, ...]]:
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    return [(row["label"], pytest.approx(max(row["probabilities"].values()))) for row in rows]


def of_score(whole: Path) -> list[tuple[object, ...]]:
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    return [(pytest.approx(row["score"]), pytest.approx(row["per_token"])) for row in rows]


def of_pairs(whole: Path) -> list[tuple[object, ...]]:
    return [tuple(line.split("\t")) for line in whole.read_text().split("\n")[:-1]]


TABLE_COMMANDS: dict[str, tuple[str, str, list[str], Any]] = {
    "embed": ("embed {bert} --input {table}", "embed {bert} --input {source} --json", ["embedding"], of_embed),
    "classify": (
        "classify {bert} --input {table}", "classify {bert} --input {source} --json", ["label", "probability"],
        of_classify,
    ),
    "score": (
        "score {translator} --source {table} --translation-column pair.de",
        "score {translator} --source {source} --target {target} --json", ["score", "per_token"], of_score,
    ),
    "backtranslate": (
        "backtranslate {translator} {table} --max-tokens 3", "backtranslate {translator} {source} --max-tokens 3",
        ["source", "target"], of_pairs,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE_COMMANDS)
def test_a_table_has_the_results_of_its_lines(paths: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Catches results that move against their ids, row groups or numbers that depend on the shards, and lost ids."""
    line, whole_line, columns, read = TABLE_COMMANDS[name]
    call(*whole_line.format_map(paths).split(), "--output", whole := tmp_path / "whole.tsv")
    arguments = [*line.format_map(paths).split(), "--id-column", "n"]
    for shards in (1, 3):
        joined = tmp_path / f"{shards}.parquet"
        call(*arguments, "--output", tmp_path / str(shards), "--shards", shards, "--join", joined)
        assert joined.read_bytes() == (tmp_path / "1.parquet").read_bytes()
        assert len([*(tmp_path / str(shards)).glob("part-*.parquet")]) == shards
    rows = parquet.read_table(joined)
    assert rows.column_names == ["n", *columns]
    assert rows.column("n").to_pylist() == [f"id {number}" for number in range(40)]
    assert parquet.ParquetFile(joined).num_row_groups == -(-40 // GROUP)
    values = [*zip(*(rows.column(column).to_pylist() for column in columns), strict=True)]
    assert values[:38] == read(whole)
    assert values[38] == (None,) * len(columns)
    assert None not in values[39]
    assert [reason.partition(":")[0] for reason in rejected(tmp_path / "3")] == ["39"]


def test_vectors_are_lists_of_float32(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches vectors that are stored in twice the space, and a column without its name."""
    call("embed", paths["bert"], "--input", paths["table"], "--output", tmp_path, "--shards", 2)
    schema = parquet.read_schema(tmp_path / "part-00000-of-00002.parquet")
    assert schema.names == ["embedding"]
    assert schema.field("embedding").type == pa.list_(pa.float32())


def test_a_table_is_evaluated_by_its_columns(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches references that move against the translations, and rows without a text that count."""
    other = [line[:-1] + "a" for line in TARGETS]
    table = {"en": [*SOURCES, None], "de": [*TARGETS, "ab"], "mt": [*other, "ab"]}
    parquet.write_table(pa.table(table), tmp_path / "test.parquet", row_group_size=GROUP)
    options = ["--bootstrap", 5, "--max-tokens", 3, "--json"]
    files = ["--source", paths["source"], "--reference", paths["target"],
             "--translations", write_lines(tmp_path / "mt", other)]  # fmt: skip
    call("evaluate", paths["translator"], *files, *options)
    expected = json.loads(capsys.readouterr().out)
    columns = ["--source", tmp_path / "test.parquet", "--text-column", "en", "--reference-column", "de",
               "--translation-column", "mt"]  # fmt: skip
    for shards in (1, 4):
        call(
            "evaluate", paths["translator"], *columns, *options, "--output", tmp_path / str(shards), "--shards", shards
        )
        found = json.loads(capsys.readouterr().out)
        assert [system["name"] for system in found["systems"]] == [str(paths["translator"]), "mt"]
        for system, known in zip(found["systems"], expected["systems"], strict=True):
            assert system["scores"] == known["scores"]
        assert found["lines"] == 38
    assert rejected(tmp_path / "4")[0].startswith("39: ")
    call("evaluate", *columns, "--bootstrap", 0, "--output", tmp_path / "alone", "--shards", 2)
    assert "BLEU" in capsys.readouterr().out


def test_the_texts_of_a_table_are_one_running_text(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches texts that are left out, doubled or joined without a line break, and rows without one that end all."""
    text = write_lines(tmp_path / "text", [*SOURCES, "ab"])
    call("perplexity", paths["gpt"], "--input", text, "--json")
    expected = json.loads(capsys.readouterr().out)
    call("perplexity", paths["gpt"], "--input", paths["table"], "--json", "--shards", 3, "--output", tmp_path / "out")
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("embed {bert} --input {table}", "is a table, which is read in shards; add --shards 16"),
        ("embed {bert} --input {source} --text-column a", "--text-column is for Parquet files"),
        ("embed {bert} --input {table} --shards 2 --output {out} --json", "--json does not go with a table"),
        ("embed {bert} --input {table} --shards 2 --output {out} --join {out}.npy", "does not end in .parquet"),
        (
            "embed {bert} --input {table} --shards 2 --output {out} --id-column m",
            "has no column 'm'; choose from n, text",
        ),
        ("classify {bert} --input {table} --shards 2 --output {out} --text-column pair.fr", "no column 'pair.fr'"),
        ("classify {bert} --input {source} --shards 2 --output {out} --id-column n", "--id-column is for Parquet"),
        ("score {translator} --source {table} --target {target} --shards 2 --output {out}", "--target does not go"),
        ("score {translator} --source {table} --shards 2 --output {out}", "no column 'translation'"),
        (
            "score {translator} --source {source} --target {target} --translation-column a",
            "--translation-column is for",
        ),
        ("backtranslate {translator} {table} --output {out} --shards 2 --join {out}.tsv", "does not end in .parquet"),
        (
            "backtranslate {translator} {table} --output {out} --shards 2 --text-column pair",
            "holds struct.*, not texts",
        ),
        ("perplexity {gpt} {table} --shards 2 --output {out} --text-column pair", "holds struct.*, not texts"),
        ("perplexity {gpt} {table}", "is a table, which is read in shards"),
        ("evaluate --source {table} --shards 2 --output {out}", "give a model, or --translation-column NAME"),
        (
            "evaluate {translator} --source {table} --reference {target} --shards 2 --output {out}",
            "--reference does not",
        ),
        (
            "evaluate {translator} --source {table} --directions en-de --shards 2 --output {out}",
            "--directions does not go with a table",
        ),
        ("evaluate --reference {target} --translations {source} --reference-column a", "--reference-column is for"),
    ],
)
def test_wrong_options_are_one_error(paths: dict[str, Path], tmp_path: Path, line: str, message: str) -> None:
    """Catches a traceback, and options of tables or of texts that have no effect."""
    with pytest.raises((ConfigError, DataError), match=message):
        call(*line.format_map({**paths, "out": tmp_path / "out"}).split())


def test_an_id_does_not_hide_a_result(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches two columns of one name, of which readers find one."""
    parquet.write_table(pa.table({"text": ["ab"], "label": ["x"]}), tmp_path / "in.parquet")
    arguments = ["classify", paths["bert"], "--input", tmp_path / "in.parquet", "--id-column", "label"]
    with pytest.raises(ConfigError, match="the results have a column 'label' already"):
        call(*arguments, "--shards", 2, "--output", tmp_path / "out")


def test_results_of_another_column_are_refused(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches one folder with the vectors of two columns."""
    arguments = ["embed", paths["bert"], "--input", paths["table"], "--output", tmp_path / "out", "--shards", 2]
    call(*arguments)
    with pytest.raises(DataError, match="holds results with another input"):
        call(*arguments, "--text-column", "pair.de")


@pytest.mark.parametrize("line", ["embed {bert} --input {source}", "classify {bert} --input {source}",
                                  "perplexity {gpt} --input {source}"])  # fmt: skip
def test_results_of_another_device_are_refused(paths: dict[str, Path], tmp_path: Path, line: str) -> None:
    """Catches one folder with results of two devices, whose last digits differ."""
    arguments = [*line.format_map(paths).split(), "--output", tmp_path / "out", "--shards", 2]
    call(*arguments)
    with pytest.raises(DataError, match="holds results with another options"):
        call(*arguments, "--device", "cpu")


def test_a_text_that_is_not_utf8_is_named_as_such(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches a damaged text that is called missing, and one that ends the job."""
    column = pa.StringArray.from_buffers(2, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0])),
                                         pa.py_buffer(b"a\xffb"))  # fmt: skip
    parquet.write_table(pa.table({"text": column}), tmp_path / "in.parquet")
    call("embed", paths["bert"], "--input", tmp_path / "in.parquet", "--output", tmp_path / "out", "--shards", 1)
    (reason,) = rejected(tmp_path / "out")
    assert reason.startswith("2: ")
    assert reason.endswith("row 2: the text of column 'text' is not UTF-8")
