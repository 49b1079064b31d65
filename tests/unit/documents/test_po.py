"""PO files: what is translated, what is marked, and what stays byte for byte."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from transformer.documents.plural_forms import parse_plural_forms, plural_forms
from transformer.documents.po_scanner import scan_entries
from transformer.documents.po_strings import Layout
from transformer.documents.text_file import read_text_file
from transformer.errors import DataError
from translated_documents import parsed, translated

HEADER = (
    b'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    b'"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)
TEMPLATE = (
    b'#, fuzzy\nmsgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n'
    b'"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\n'
)


def targets(content: bytes) -> list[str]:
    """Returns all translations of a PO file, in order, without the header's."""
    entries = [*scan_entries(read_text_file(content, "name"))]
    return [target.text for entry in entries if entry.fields["msgid"].text for target in entry.targets]


def test_an_empty_translation_is_filled_and_marked() -> None:
    out, report = translated(HEADER + b'#: a.c:1\nmsgid "Open"\nmsgstr ""\n', "po")
    assert out == HEADER + b'#: a.c:1\n#, fuzzy\nmsgid "Open"\nmsgstr "oPEN"\n'
    assert (report.translated, report.kept, report.refused) == (1, 0, 0)


def test_fuzzy_joins_the_flags_that_are_there() -> None:
    out, _ = translated(HEADER + b'#, c-format, no-wrap\nmsgid "%d pages"\nmsgstr ""\n', "po")
    assert out == HEADER + b'#, fuzzy, c-format, no-wrap\nmsgid "%d pages"\nmsgstr "%d PAGES"\n'


def test_translations_stay_and_fuzzy_ones_are_replaced_on_request() -> None:
    body = b'msgid "Open"\nmsgstr "Auf"\n\n#, fuzzy\n#| msgid "Shut"\nmsgid "Close"\nmsgstr "Zu"\n'
    out, report = translated(HEADER + body, "po")
    assert (out, report.kept) == (HEADER + body, 2)
    out, _ = translated(HEADER + body, "po", fuzzy=True, mark="none")
    assert out == HEADER + b'msgid "Open"\nmsgstr "Auf"\n\nmsgid "Close"\nmsgstr "cLOSE"\n'
    out, _ = translated(HEADER + body, "po", only_untranslated=False)
    assert targets(out) == ["oPEN", "cLOSE"]


def test_obsolete_entries_contexts_and_comments_stay() -> None:
    body = b'# By hand\n#. For the menu\nmsgctxt "menu"\nmsgid "File"\nmsgstr ""\n\n#~ msgid "Old"\n#~ msgstr ""\n'
    out, _ = translated(HEADER + body, "po", mark="none")
    assert out == HEADER + body.replace(b'File"\nmsgstr "', b'File"\nmsgstr "fILE')


@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("de", ["%d FILE", "%d FILES"]),
        ("ja", ["%d FILES"]),
        ("ru", ["%d FILE", "%d FILES", "%d FILES"]),
    ],
)
def test_a_plural_has_the_forms_of_its_language(language: str, forms: list[str]) -> None:
    body = b'#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    out, report = translated(TEMPLATE + body, "po", languages=("en", language))
    assert targets(out) == forms
    assert report.translated == 1
    assert f"nplurals={len(forms)};".encode() in out
    assert f'"Language: {language}\\n"'.encode() in out
    assert b"charset=UTF-8" in out
    assert b'#, fuzzy\nmsgid ""' not in out


def test_a_singular_without_its_number_is_not_written_for_other_numbers() -> None:
    """Catches "one file" for 21 files: the first form of Russian is that of 1, 21, 31."""
    body = b'#, c-format\nmsgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    assert targets(translated(TEMPLATE + body, "po", languages=("en", "ru"))[0]) == ["%d FILES"] * 3
    assert targets(translated(TEMPLATE + body, "po", languages=("en", "de"))[0]) == ["ONE FILE", "%d FILES"]


def test_a_lost_placeholder_leaves_the_entry_untranslated_with_the_reason() -> None:
    body = b'#, c-format\nmsgid "Page %lu of %d"\nmsgstr ""\n'
    out, report = translated(HEADER + body, "po", lambda line: line.replace("%1$d", ""))
    assert out == HEADER + b"# not translated by the program: the translation lacks '%lu'\n" + body
    assert (report.translated, report.refused) == (0, 1)
    (problem,) = report.problems
    assert (problem.place, str(problem)) == ("name:8", "left untranslated: the translation lacks '%lu'")
    again, _ = translated(out, "po", lambda line: line.replace("%1$d", ""))
    assert again == out
    assert translated(out, "po", mark="none")[0] == HEADER + body.replace(b'msgstr ""', b'msgstr "pAGE %lu OF %d"')


def test_placeholders_in_another_order_are_numbered_where_the_format_allows() -> None:
    def turn(line: str) -> str:
        return line.replace("%1$s", "A").replace("%2$d", "%1$s").replace("A", "%2$d")

    def body(flag: bytes) -> bytes:
        return HEADER + b"#, " + flag + b'\nmsgid "%s has 100%% of %5lu"\nmsgstr ""\n'

    assert targets(translated(body(b"c-format"), "po", turn)[0]) == ["%2$5lu has 100%% of %1$s"]
    out, report = translated(body(b"python-format"), "po", turn)
    assert (targets(out), report.refused) == ([""], 1)
    named = body(b"python-format").replace(b"%s", b"%(who)s").replace(b"%5lu", b"%(size)d")
    assert targets(translated(named, "po", turn)[0]) == ["%(size)d has 100%% of %(who)s"]


def test_strings_are_wrapped_as_the_file_wraps_them() -> None:
    words = b"word " * 20
    on_lines = b' ""\n"' + words[:75] + b'"\n"' + words[75:-1] + b'"\n'
    out, _ = translated(HEADER + b"msgid" + on_lines + b'msgstr ""\n', "po", mark="none")
    assert out == HEADER + b"msgid" + on_lines + b"msgstr" + on_lines.upper()
    on_one_line = b' "' + words[:-1] + b'"\n'
    out, _ = translated(HEADER + b"msgid" + on_one_line + b'msgstr ""\n', "po", mark="none")
    assert out == HEADER + b"msgid" + on_one_line + b"msgstr" + on_one_line.upper()


def test_a_placeholder_within_a_word_is_kept() -> None:
    body = HEADER + b'#, c-format\nmsgid "%d file%s in %.3fs"\nmsgstr ""\n'
    assert targets(translated(body, "po")[0]) == ["%d FILE%s IN %.3fS"]


def test_a_layout_breaks_at_line_ends_after_spaces_and_between_wide_characters() -> None:
    assert Layout().lines("msgstr", "one\ntwo") == ['msgstr ""', '"one\\n"', '"two"']
    assert Layout().lines("msgstr", "one\n") == ['msgstr "one\\n"']
    assert Layout(width=12).lines("msgstr", "one two three") == ['msgstr ""', '"one two "', '"three"']
    assert Layout(width=12).lines("msgstr", "日本語日本語") == ['msgstr ""', '"日本語日本"', '"語"']


def test_bytes_beside_the_translation_stay() -> None:
    """Catches changed line ends, a lost byte order mark, and a file without a line end."""
    content = b"\xef\xbb\xbf" + (HEADER + b'  msgid "Open"\n  msgstr ""').replace(b"\n", b"\r\n")
    out, _ = translated(content, "po")
    assert out == content.replace(b'  msgid "Open"', b'#, fuzzy\r\n  msgid "Open"').replace(
        b'  msgstr ""', b'  msgstr "oPEN"'
    )


def test_an_encoding_that_lacks_a_letter_refuses_the_translation() -> None:
    content = HEADER.replace(b"UTF-8", b"ISO-8859-1") + b'# \xe9\nmsgid "Open"\nmsgstr ""\n'
    out, report = translated(content, "po", lambda line: "Otwórz ł")
    assert str(report.problems[0]).startswith("left untranslated: 'ł' cannot be written in ISO-8859-1")
    assert b"# \xe9\n" in out
    assert translated(content, "po", lambda line: "é", mark="none")[0] == content.replace(
        b'n"\nmsgstr ""', b'n"\nmsgstr "\xe9"'
    )


def test_translations_to_another_language_are_not_mixed_in() -> None:
    content = HEADER + b'msgid "Open"\nmsgstr "Auf"\n\nmsgid "Close"\nmsgstr ""\n'
    with pytest.raises(DataError, match="holds translations to 'de', but the model translates to 'fr'"):
        translated(content, "po", languages=("en", "fr"))
    assert b"Language: fr" in translated(content, "po", languages=("en", "fr"), only_untranslated=False)[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'msgid "Open\nmsgstr ""\n', "name, line 1: a quotation mark is missing"),
        (b'msgid "a"\nmsgstr ""\n\nsome text\n', "name, line 4: a quotation mark is missing, or text is outside"),
        (b'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "name, line 3: a second msgid"),
        (b'msgid "a"\n# end\n', "name, line 1: the entry has no msgstr"),
        (b'msgstr "a"\n', "name, line 1: the entry has no msgid"),
        (b'msgid\t\nmsgstr ""\n', "name, line 1: a string is missing"),
        (b'msgid "\xff"\nmsgstr ""\n', "name, line 1: 0xff is not UTF-8"),
        (HEADER.replace(b"UTF-8", b"no-such") + b'msgid "a"\nmsgstr ""\n', "encoding 'no-such' is unknown"),
        (b"\xff\xfem", "it is not in its encoding|is not UTF-16"),
        (b'msgid "' + b'\\"' * 500_000, "a quotation mark is missing"),
    ],
)
def test_a_broken_file_is_refused_by_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(content, "po")


def test_plural_forms_are_those_of_gettext() -> None:
    assert str(plural_forms("fr")) == "nplurals=2; plural=(n > 1);"
    assert str(plural_forms("pt-BR")) == "nplurals=2; plural=(n > 1);"
    assert str(plural_forms("de-AT")) == "nplurals=2; plural=(n != 1);"
    for invalid in (
        "nplurals=INTEGER; plural=EXPRESSION;",
        "nplurals=2; plural=n/0;",
        f"nplurals=2; plural={'(' * 900};",
    ):
        assert parse_plural_forms(invalid) is None


def real_files() -> list[Path]:
    """Returns PO files of installed packages."""
    spec = find_spec("sphinx")
    folder = Path(spec.origin or "").parent if spec else Path("missing")
    return sorted(folder.rglob("*.po"))[::14]


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.parts[-3])
def test_real_files_keep_every_byte_outside_the_translations(path: Path) -> None:
    """Translates all entries anew; what is not a translation, a flag or a header stays, and msgfmt accepts it."""
    content = path.read_bytes()
    language = parsed(content, "po").target_language.replace("_", "-")
    out, report = translated(content, "po", only_untranslated=False, languages=("en", language), mark="none")
    assert translated(out, "po", only_untranslated=False, languages=("en", language), mark="none")[0] == out
    assert report.refused < 0.02 * report.translated
    assert [segment.source for segment in parsed(content, "po").segments] == [
        segment.source for segment in parsed(out, "po").segments
    ]
    if shutil.which("msgfmt"):
        check = subprocess.run(["msgfmt", "-c", "-o", "/dev/null", "-"], input=out, capture_output=True, check=False)
        assert not check.returncode, check.stderr.decode()
