"""`transformer translate` with documents: formats by name and content, folders, options, and what is refused."""

import json
from pathlib import Path

import pytest

import transformer
from commands import run
from transformer.cli.document_report import open_report
from transformer.documents.formats import FORMATS
from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.documents import Problem

PO = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n\nmsgid "one two"\nmsgstr ""\n\nmsgid "three"\nmsgstr "drei"\n'


@pytest.fixture
def po(tmp_path: Path) -> Path:
    path = tmp_path / "app.po"
    path.write_text(PO, encoding="utf-8", newline="")
    return path


def test_a_document_is_translated_in_place(tiny_run: Path, po: Path) -> None:
    out = po.with_name("app.de.po")
    result = run("translate", tiny_run, "--input", po, "--output", out)
    assert result.returncode == 0, result.stderr
    translation = str(transformer.load(tiny_run)("one two"))
    expected = PO.replace('msgid "one two"\nmsgstr ""', f'#, fuzzy\nmsgid "one two"\nmsgstr "{translation}"')
    assert out.read_text(encoding="utf-8") == expected
    assert "2 segments: 1 translated" in result.stderr
    assert "1 kept" in result.stderr
    printed = run("translate", tiny_run, "--input", po, "--quiet")
    assert (printed.stdout, printed.stderr) == (expected, "")


def test_a_format_is_told_by_name_content_or_option(tiny_run: Path, po: Path) -> None:
    for name, options in (("messages", []), ("a.txt", []), ("b.txt", ["--as", "po"])):
        path = po.rename(po.with_name(name))
        result = run("translate", tiny_run, "--input", path, "--dry-run", *options)
        assert result.stdout == f"{path}: 1 segment to translate (2 words), 1 to keep\n", result.stderr
        po = path


def test_a_file_of_both_languages_may_replace_itself(tiny_run: Path, po: Path) -> None:
    assert run("translate", tiny_run, "--input", po, "--output", po, "--mark", "none").returncode == 0
    first = po.read_bytes()
    assert b"fuzzy" not in first
    assert run("translate", tiny_run, "--input", po, "--output", po).returncode == 0
    assert po.read_bytes() == first
    assert run("translate", tiny_run, "--input", po, "--output", po, "--all").returncode == 0
    assert po.read_bytes().count(b"#, fuzzy") == 2


def test_a_folder_is_translated_file_by_file(tiny_run: Path, tmp_path: Path, po: Path) -> None:
    folder, out = tmp_path / "locale", tmp_path / "locale" / "out"
    (folder / "sub").mkdir(parents=True)
    po.rename(folder / "sub" / "app.po")
    (folder / "bad.po").write_text("msgid\n", encoding="utf-8")
    (folder / "notes.txt").write_text("one two\n", encoding="utf-8")
    result = run("translate", tiny_run, "--input", folder, "--output", out)
    assert result.returncode == 2
    assert f"left out: {folder / 'bad.po'}, line 1:" in result.stderr
    assert "error: left out 1 of 2 documents" in result.stderr
    assert [path.relative_to(out).as_posix() for path in out.rglob("*.*")] == ["sub/app.po"]
    (folder / "bad.po").unlink()
    assert run("translate", tiny_run, "--input", folder, "--output", out).returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", "2"], "--n-best needs lines of text, but the input is a document"),
        (["--json"], "--format needs lines of text"),
        (["--as", "docx2"], "'docx2' is not a format of documents; choose from po"),
        (["--output", "app.po/x.po"], "Not a directory"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tiny_run: Path, po: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(po.parent)
    result = run("translate", tiny_run, "--input", po, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_options_for_documents_need_one(tiny_run: Path, tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("one\n", encoding="utf-8")
    for option in ("--fuzzy", "--all", "--dry-run", "--mark=none", "--report=a.tsv"):
        result = run("translate", tiny_run, "--input", text, option)
        assert f"{option.partition('=')[0]} is for documents, but the input is text" in result.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "name one for the translations" in run("translate", tiny_run, "--input", empty).stderr
    result = run("translate", tiny_run, "--input", empty, "--output", tmp_path / "out")
    assert "has no document of a known format" in result.stderr


def test_a_file_is_translated_from_python(tiny_run: Path, po: Path) -> None:
    translator = transformer.load(tiny_run)
    report = translator.translate_file(po, po.with_name("out.po"), mark="none", only_untranslated=False)
    assert (report.documents, report.translated, report.kept) == (1, 2, 0)
    assert "fuzzy" not in po.with_name("out.po").read_text(encoding="utf-8")
    with pytest.raises(DataError, match="is not a document of a known format"):
        translator.translate_file(__file__, po)
    with pytest.raises(DataError, match="check the path"):
        translator.translate_file("missing.po", po)
    with pytest.raises(ConfigError, match="'pdf' is not a format"):
        translator.translate_file(po, po, "pdf")


def test_the_help_names_all_formats() -> None:
    """Catches a format that was added and that nobody learns of."""
    text = " ".join(run("translate", "--help").stdout.split())
    named = text.partition("which is translated in place: ")[2].partition(" [default")[0]
    assert named.replace(" ", "").split(",") == [form.name for form in FORMATS]


LEFT = '{"a": "one {x, plural, one {a}", "b": "three", "c": "two\\tone {x, plural, one {b}"}\n'
REASON = "its message format is not understood"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A file with two messages that are left untranslated, since their braces are not closed."""
    path = tmp_path / "en.json"
    path.write_text(LEFT, encoding="utf-8")
    return path


def test_a_report_lists_what_was_left(tiny_run: Path, left: Path) -> None:
    """Catches segments of formats without comments of which nobody learns, and rows that a tab splits."""
    table, objects = left.with_name("report.tsv"), left.with_name("report.json")
    for report in (table, objects):
        result = run("translate", tiny_run, "--input", left, "--output", left.with_name("de.json"), "--report", report)
        assert result.returncode == 0, result.stderr
    facts = {"document": str(left), "line": 1, "state": "untranslated", "reason": REASON}
    sources = ["one {x, plural, one {a}", "two\tone {x, plural, one {b}"]
    rows = [{**facts, "source": source, "translation": ""} for source in sources]
    assert json.loads(objects.read_text(encoding="utf-8")) == rows
    expected = [[*rows[0]], *([str(value).replace("\t", "\\t") for value in row.values()] for row in rows)]
    assert [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()] == expected


def test_a_report_has_unsure_translations(tmp_path: Path) -> None:
    """Catches an unsure translation that is reported without its text, or as untranslated."""
    path = tmp_path / "a.json"
    with open_report(path) as add:
        add([Problem("a.po", 3, "unsure (expected chrF 0.21)", "One\ntwo", "Eins\nzwei")])
        add([Problem("b.po", 7, "why", "x")])
    first, second = json.loads(path.read_text(encoding="utf-8"))
    assert (first["state"], first["source"], first["translation"]) == ("unsure", "One\ntwo", "Eins\nzwei")
    assert (second["document"], second["line"], second["state"]) == ("b.po", 7, "untranslated")


def test_a_report_of_a_folder_has_all_documents(tiny_run: Path, left: Path, tmp_path: Path) -> None:
    """Catches a report with the rows of the last document, and of a process of several."""
    folder, reports = tmp_path / "in", [tmp_path / "1.tsv", tmp_path / "2.tsv"]
    folder.mkdir()
    for name in ("a.json", "b.json"):
        (folder / name).write_text(LEFT, encoding="utf-8")
    for report, options in zip(reports, ([], ["--shards", "2"]), strict=True):
        result = run("translate", tiny_run, "--input", folder, "--output", report.with_suffix(""), "--report", report,
                     *options)  # fmt: skip
        assert result.returncode == 0, result.stderr
    first, second = (report.read_text(encoding="utf-8") for report in reports)
    assert first == second
    assert {f"{folder / name}" for name in ("a.json", "b.json")} < {line.split("\t")[0] for line in first.splitlines()}


def test_an_empty_report_says_so(tiny_run: Path, left: Path) -> None:
    """Catches a JSON report that is not JSON if nothing is wrong."""
    left.write_text('{"a": "12"}', encoding="utf-8")
    for name, expected in (("a.json", "[]\n"), ("a.tsv", "document\tline\tstate\treason\tsource\ttranslation\n")):
        assert run("translate", tiny_run, "--input", left, "--report", left.with_name(name)).returncode == 0
        assert left.with_name(name).read_text(encoding="utf-8") == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "a.txt"], "--report a.txt: name a file that ends in .tsv or .json"),
        (["--report", "a.tsv", "--dry-run"], "--report needs translations"),
        (["--report", "{out}", "--output", "{out}"], "is used for two outputs"),
        (["--report", "no/a.tsv"], "No such file"),
    ],
)
def test_reports_that_cannot_be_written_are_refused(
    tiny_run: Path, left: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a report that is missed only when all is translated, or that replaces the translation."""
    monkeypatch.chdir(left.parent)
    options = [option.format(out="out.json") for option in options]
    result = run("translate", tiny_run, "--input", left, *options)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert message in result.stderr
