"""`transformer translate` with documents: formats by name and content, folders, options, and what is refused."""

from pathlib import Path

import pytest

import transformer
from commands import run
from transformer.documents.formats import FORMATS
from transformer.errors import ConfigError, DataError

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
    assert "error: 1 of 2 documents were left out" in result.stderr
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
    for option in ("--fuzzy", "--all", "--dry-run", "--mark=none"):
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
