"""Corpus examination: every kind of finding, and its report."""

import json
import random
import re
import sys
import tracemalloc
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from samples import write_lines
from transformer.cli import main
from transformer.data.quality.characters import find_suspicious_characters
from transformer.data.quality.examination import Examination, examine
from transformer.data.quality.findings import KINDS
from transformer.data.quality.language import main_scripts, unusual_scripts
from transformer.data.quality.report import text_report
from transformer.errors import DataError
from transformer.reporting.corpus_page import html_report
from unit.data.quality.invented_languages import invented, sentences

N = 311
Lines = list[str]


def examined(folder: Path, source: Lines, target: Lines, tests: Lines | None = None, **options: int) -> Examination:
    paths = write_lines(folder / "a.src", source), write_lines(folder / "a.tgt", target)
    test_files = [write_lines(folder / "test.src", tests)] if tests else []
    return examine(*paths, test_files, **options)


def kinds(examination: Examination) -> set[str]:
    return {finding.kind for finding in examination.findings}


def change(side: int, line: int, text: str | Callable[[str], str]) -> Callable[[Lines, Lines], None]:
    def apply(*sides: Lines) -> None:
        sides[side][line - 1] = text if isinstance(text, str) else text(sides[side][line - 1])

    return apply


def copied(source: Lines, target: Lines) -> None:
    target[16] = source[16]


def repeated(source: Lines, target: Lines) -> None:
    source[16], target[16] = source[6], target[6]


def several_targets(source: Lines, target: Lines) -> None:
    source[16] = source[6]


def several_sources(source: Lines, target: Lines) -> None:
    target[16] = target[6]


def numbered(source: Lines, target: Lines) -> None:
    """Puts different numbers into the two sides of a pair."""
    source[8] += " 16"
    target[8] += " 17"


# Kind -> a change of the corpus that causes it, and the lines (file, number) that must be shown first.
FAULTS: dict[str, tuple[Callable[[Lines, Lines], None], list[tuple[str, int]]]] = {
    "nul": (change(0, 17, lambda text: text + "\0"), [("a.src", 17)]),
    "line-break": (change(1, 19, lambda text: text + "\u2028"), [("a.tgt", 19)]),
    "control-character": (change(0, 23, lambda text: "\x1b[31m" + text), [("a.src", 23)]),
    "replacement": (change(1, 5, lambda text: text + " \ufffd"), [("a.tgt", 5)]),
    "mojibake": (change(1, 7, lambda text: text + " schÃ¶n"), [("a.tgt", 7)]),
    "numbers": (numbered, [("a.src", 9), ("a.tgt", 9)]),
    "placeholders": (change(0, 9, lambda text: text + " {name}"), [("a.src", 9), ("a.tgt", 9)]),
    "tags": (change(1, 9, lambda text: f"<b>{text}"), [("a.src", 9), ("a.tgt", 9)]),
    "addresses": (change(1, 9, lambda text: text + " www.a.org"), [("a.src", 9), ("a.tgt", 9)]),
    "final-mark": (change(1, 9, lambda text: text + "?"), [("a.src", 9), ("a.tgt", 9)]),
    "mixed-script": (change(1, 9, lambda text: text + " c\u0430t"), [("a.tgt", 9)]),
    "tab": (change(0, 9, lambda text: text + "\tx"), [("a.src", 9)]),
    "html": (change(0, 7, lambda text: text + " &amp;"), [("a.src", 7)]),
    "control-token": (change(0, 11, lambda text: text + " </s>"), [("a.src", 11)]),
    "carriage-return": (change(0, 11, lambda text: text + "\r"), []),
    "script": (change(1, 13, "мужчина идёт по улице домой сегодня"), [("a.tgt", 13)]),
    "other-side": (change(1, 29, " ".join(invented(9, seed=9)[0][:2])), [("a.src", 29), ("a.tgt", 29)]),
    "foreign": (change(1, 31, " ".join(sentences(3))), [("a.src", 31), ("a.tgt", 31)]),
    "copy": (copied, [("a.src", 17)]),
    "empty": (change(1, 37, " \t"), [("a.src", 37), ("a.tgt", 37)]),
    "length-ratio": (change(0, 41, lambda text: " ".join([text] * 7)), [("a.src", 41), ("a.tgt", 41)]),
    "too-long": (change(0, 43, lambda text: text + " x" * 200), [("a.src", 43), ("a.tgt", 43)]),
    "list-mark": (change(1, 47, lambda text: f"• {text}"), [("a.src", 47), ("a.tgt", 47)]),
    "decomposed": (change(0, 47, lambda text: f"{text} e\u0301"), [("a.src", 47)]),
    "special-space": (change(1, 47, lambda text: f"{text}\u202f!"), [("a.tgt", 47)]),
    "soft-hyphen": (change(1, 47, lambda text: f"a\xad{text}"), [("a.tgt", 47)]),
    "outer-space": (change(0, 47, lambda text: f" {text}"), [("a.src", 47)]),
    "duplicate": (repeated, [("a.src", 17)]),
    "several-targets": (several_targets, []),
    "several-sources": (several_sources, []),
}


def test_a_good_corpus_is_fine(tmp_path: Path) -> None:
    """Catches findings in a corpus without faults."""
    examination = examined(tmp_path, *invented(N), tests=sentences(5))
    assert examination.findings == []
    assert examination.is_fine
    assert text_report(examination).endswith("fine: nothing needs to be done\n")


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_told_with_its_line(kind: str, tmp_path: Path) -> None:
    """Catches a check that is missing, that counts too much, or that names another line."""
    source, target = invented(N)
    fault, expected_lines = FAULTS[kind]
    fault(source, target)
    examination = examined(tmp_path, source, target)
    (finding,) = [finding for finding in examination.findings if finding.kind == kind]
    assert finding.count == 1
    shown = finding.examples[0].lines if finding.examples else ()
    assert [(line.file, line.line) for line in shown] == expected_lines
    assert all(line.text == {"a.src": source, "a.tgt": target}[line.file][line.line - 1] for line in shown)
    assert examination.is_fine == all(KINDS[name].level == "note" for name in kinds(examination))
    assert KINDS[kind].title in text_report(examination)


def test_traits_are_counted_for_each_side(tmp_path: Path) -> None:
    """Catches a report that does not say which side is affected, or whether both forms of a character occur."""
    source, target = invented(N)
    for line in range(0, 30, 3):
        source[line] += " e\u0301"
        target[line] += " e\u0301 "
        target[line + 1] += " \xe9"
    examination = examined(tmp_path, source, target)
    details = {finding.kind: finding.details for finding in examination.findings}
    assert details == {
        "decomposed": [
            {"file": "a.src", "lines": 10, "composed": 0}, {"file": "a.tgt", "lines": 10, "composed": 10},
        ],
        "outer-space": [{"file": "a.tgt", "lines": 10}],
    }  # fmt: skip
    assert "a.tgt: 10, and 10 lines with composed characters\n" in text_report(examination)
    assert "a.tgt: 10, and 10 lines with composed characters" in html_report(examination)
    assert examination.is_fine


def test_list_marks_of_both_sides_are_no_finding(tmp_path: Path) -> None:
    """Catches a different mark, a hyphen within a word, a negative number and a dash alone taken for a lost mark."""
    source, target = invented(N)
    for line, (one, other) in enumerate([("- ", "• "), ("– ", "-\xa0"), ("-", ""), ("", "-5 "), ("*", ""), ("", "* ")]):
        source[line], target[line] = one + source[line], other + target[line]
    source[9] = target[9] = "-"
    findings = {finding.kind: finding for finding in examined(tmp_path, source, target).findings}
    assert [example.lines[0].line for example in findings["list-mark"].examples] == [6]


def test_a_huge_line_is_examined_in_bounded_memory(tmp_path: Path) -> None:
    """Catches an examination that takes hundreds of bytes for each character of a line, or never ends."""
    source, target = invented(N)
    source[40], target[41] = "x" * 20_000_000, "word " * 4_000_000
    write_lines(tmp_path / "a.src", source)
    write_lines(tmp_path / "a.tgt", target)
    del source, target
    tracemalloc.start()
    try:
        examination = examine(tmp_path / "a.src", tmp_path / "a.tgt")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [finding.count for finding in examination.findings if finding.kind == "too-long"] == [2]
    assert peak < 64 << 20


def test_every_kind_is_tested() -> None:
    """Catches a kind of finding without a test."""
    elsewhere = {
        "unequal", "shift", "unrelated", "stretch", "invalid-utf8", "byte-order-mark", "test-overlap",
        "test-overlap-loose", "poor-fit", "not-judged", "one-case",
    }  # fmt: skip
    assert elsewhere | set(FAULTS) == set(KINDS)


def test_unequal_files_are_examined_all_the_same(tmp_path: Path) -> None:
    """Catches an examination that stops at the first error: after the lost line, all pairs are correct."""
    source, target = invented(N)
    del target[100]
    examination = examined(tmp_path, source, target)
    assert kinds(examination) == {"unequal", "shift"}
    unequal, shift = examination.findings
    assert unequal.examples[0].reason == "a.src has 311 lines, a.tgt has 310"
    assert [(line.file, line.line, line.text) for line in shift.examples[0].lines] == [("a.src", 101, source[100])]
    assert "line 101 of a.src has no partner in a.tgt" in text_report(examination)
    assert examination.shifts[0].size == -1
    examination = examined(tmp_path, source, [*invented(N)[1], "one more"])
    assert kinds(examination) == {"unequal"}
    assert examination.findings[0].examples[1].reason.startswith("the last line of a.tgt may be superfluous")


def test_a_stretch_of_another_text_is_told(tmp_path: Path) -> None:
    """Catches lines without a fitting partner that are ignored because no shift explains them."""
    source, target = invented(N)
    target[128:224] = invented(N, seed=8)[1][:96]
    examination = examined(tmp_path, source, target)
    assert kinds(examination) == {"stretch"}
    assert examination.findings[0].examples[0].reason == "lines 129 to 224 of a.src"
    assert examination.findings[0].count == 96


def test_poor_pairs_are_counted_and_ranked(tmp_path: Path) -> None:
    """Catches a list without the wrong pairs, or one that is not sorted by fit."""
    source, target = invented(N)
    swapped_rows = random.Random(1).sample(range(N), 2 * 12)
    for one, other in zip(swapped_rows[::2], swapped_rows[1::2], strict=True):
        target[one], target[other] = target[other], target[one]
    examination = examined(tmp_path, source, target)
    assert kinds(examination) == {"poor-fit"}
    assert examination.poor >= 20
    worst = examination.worst
    assert len(worst) == 20
    assert [pair.fit for pair in worst] == sorted(pair.fit for pair in worst)
    assert len({pair.source.line - 1 for pair in worst} & set(swapped_rows)) >= 18
    assert all(pair.source.line == pair.target.line for pair in worst)


def test_reasons_of_a_bad_pair(tmp_path: Path) -> None:
    """Catches a reason that blames the wrong side."""
    source, target = invented(N)
    source[70], target[70] = "17 " + " ".join(source[200:204]), "23 " + target[250]
    worst = examined(tmp_path, source, target).worst[0]
    assert worst.source.line == 71
    assert re.fullmatch(
        r"source \d\.\d times as long as usual; different numbers; its words rarely occur together in other pairs",
        worst.reason,
    )


def test_unrelated_files_and_too_few_lines(tmp_path: Path) -> None:
    """Catches unrelated files that are not reported, and a verdict on a few lines."""
    source, target = invented(601)
    assert kinds(examined(tmp_path, source, target[::-1])) == {"unrelated"}
    few = examined(tmp_path, source[:7], target[:7])
    assert kinds(few) == {"not-judged"}
    assert "how well the two sides fit cannot be estimated" in text_report(few)


def test_bytes_that_are_not_utf8_are_placed(tmp_path: Path) -> None:
    """Catches positions counted in characters, and a report of the first bad line only."""
    source, target = (("\n".join(side) + "\n").encode().split(b"\n") for side in invented(N))
    source[2], source[4] = "schön ".encode() + b"\xe4 " + source[2], b"\xff " + source[4]
    target[0] = b"\xef\xbb\xbf" + target[0]
    paths = tmp_path / "a.src", tmp_path / "a.tgt"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_bytes(b"\n".join(lines))
    examination = examine(*paths)
    assert kinds(examination) == {"invalid-utf8", "byte-order-mark"}
    positions = [(example.lines[0].line, example.reason) for example in examination.findings[0].examples]
    assert positions == [(3, "byte 8"), (5, "byte 1")]
    assert examination.findings[1].examples[0].lines[0].file == "a.tgt"


def test_test_lines_in_the_training_text(tmp_path: Path) -> None:
    """Catches overlap hidden by case or punctuation, and test lines counted once per training line."""
    source, target = invented(N)
    source[5] = source[3]
    tests = [source[3], source[9].upper() + " .", source[12] + "\r", "new words", ""]
    examination = examined(tmp_path, source, target, tests)
    assert {finding.kind: finding.count for finding in examination.findings} == {
        "test-overlap": 3, "test-overlap-loose": 1, "several-targets": 1,
    }  # fmt: skip
    assert examination.tests == [{"file": "test.src", "lines": 5, "exact": 2, "loose": 3}]
    assert "3 of 5 lines of test.src are in the training text, 2 of them word for word" in text_report(examination)
    (example,) = examination.findings[1].examples
    assert [(line.file, line.line) for line in example.lines] == [("a.src", 10), ("test.src", 2)]


def test_pieces_tell_what_the_whole_tells(tmp_path: Path) -> None:
    """Catches line numbers that restart in each block, and duplicates in different blocks that are missed."""
    source, target = invented(N)
    source[7], target[7] = source[300], target[300]
    target[290] = ""
    examination = examined(tmp_path, source, target, most_lines=101)
    assert {finding.kind: finding.examples[0].lines[0].line for finding in examination.findings} == {
        "empty": 291, "duplicate": 301,
    }  # fmt: skip
    assert examination.judged == N - 1


def test_characters_of_good_text_are_not_odd() -> None:
    """Catches patterns that report other languages as damaged text."""
    good = [
        "Ça va ? Élève à l'école, cœur “naïf” — 50 % … «Ô»", "ÄÖÜ äöüß „so“ ‚da‘", "NÃO, À SÃO PAULO", "Привет, мир!",
        "日本語です。", "a < b && c > d; x[0] = <3", "AT&T & Co.; [EU]", "Â", "ÑANDÚ", "ελληνικά", "עברית",
    ]  # fmt: skip
    assert [list(find_suspicious_characters(line)) for line in good] == [[]] * len(good)


@pytest.mark.parametrize("text", ["schön", "“so” – ‘da’", "Élève à", "Привет"])
def test_wrongly_decoded_text_is_odd(text: str) -> None:
    """Catches undetected mojibake: UTF-8 decoded as Windows-1252."""
    wrong = "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in text.encode())
    assert [kind for kind, _ in find_suspicious_characters(wrong)] in (["mojibake"], ["control-character", "mojibake"])


def test_scripts() -> None:
    """Catches a line that counts for its neighbor, kana apart from Chinese characters, and codes instead of names."""
    lines = ["Äpfel 12", "Привет", "お茶はいい", "नमस्ते", "12 !?", "ok", "АБВ abcd"]
    assert main_scripts(lines) == ["Latn", "Cyrl", "Hani", "Deva", "", "", "Latn"]
    reasons = ["Cyrillic, not Han or kana or Latin", "Devanagari, not Han or kana or Latin"]
    assert list(unusual_scripts([*lines[:2], *lines[2:3] * 100, lines[3], *lines[:1] * 150])) == [
        (1, reasons[0]), (102, reasons[1]),
    ]  # fmt: skip


class Tags(HTMLParser):
    """Collects the names of tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records a tag and its attributes."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_nothing_of_the_corpus_can_act_in_a_report(tmp_path: Path) -> None:
    """Catches a corpus line that runs as a script, loads an image or controls the terminal."""
    source, target = invented(N)
    attack = '<script>alert(1)</script><img src="https://x.example" onerror=alert(2)>\x1b[2J \u202e\x9b</table>'
    for line in range(0, 12, 3):
        source[line], target[line + 1], target[line + 2] = attack * 3, attack, attack + "\0"
    examination = examined(tmp_path, source, target, tests=[attack])
    page = html_report(examination)
    parser = Tags()
    parser.feed(page)
    assert "&lt;script&gt;alert(1)" in page
    assert not parser.tags & {"script", "img", "link", "iframe", "object", "a", "form"}
    assert not parser.attributes & {"src", "href", "onerror"}
    assert not {"\x1b", "\0", "\x9b", "\u202e"} & set(page + text_report(examination))
    assert r"\x1b[2J \u202e\x9b" in page
    assert r"\x1b[2J" in text_report(examination)


def test_one_line_is_not_one_lines(tmp_path: Path) -> None:
    """Catches "1 lines" in the text and in the page, and "2 line"."""
    one = examine(write_lines(tmp_path / "a.src", ["a b"]), write_lines(tmp_path / "a.tgt", ["c d"]))
    two = examine(write_lines(tmp_path / "b.src", ["a b", "c"]), write_lines(tmp_path / "b.tgt", ["c d", "e"]))
    for report in (text_report, html_report):
        assert "a.src (1 line) and a.tgt (1 line)" in report(one)
        assert "b.src (2 lines) and b.tgt (2 lines)" in report(two)


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["transformer", "check", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Catches exit codes and formats that scripts cannot rely on."""
    source, target = invented(N)
    good = write_lines(tmp_path / "a.src", source), write_lines(tmp_path / "a.tgt", target)
    assert run_main(monkeypatch, *good) == 0
    assert b"a.src (311 lines) and a.tgt (311 lines)" in capfdbinary.readouterr().out
    bad = write_lines(tmp_path / "b.src", ["", *source[1:]])
    assert run_main(monkeypatch, bad, good[1], "--format", "json") == 1
    result = json.loads(capfdbinary.readouterr().out)
    assert [finding["kind"] for finding in result["findings"]] == ["empty"]
    assert (result["fine"], result["counts"]) == (False, {"problem": 0, "warning": 1, "note": 0})
    assert result["files"][1] == {"side": "target", "file": "a.tgt", "lines": 311}
    steering = "\x9b\u202e\x7f\u2028\U000e0041"
    strange = write_lines(tmp_path / "c.src", [f"{steering} 東", *source[1:]]), *good[1:]
    run_main(monkeypatch, *strange, "--format", "json")
    written = capfdbinary.readouterr().out.decode()
    assert all(character.isprintable() or character == "\n" for character in written)
    assert "\\u009b\\u202e\\u007f\\u2028\\udb40\\udc41 東" in written
    json.loads(written)
    marked = tmp_path / "marked"
    marked.write_bytes(b"\xef\xbb\xbf" + "\n".join(source[:3]).encode() + b"\n\xff\n")
    assert run_main(monkeypatch, *good, "--test", marked) == 1, "a test file may contain any bytes"
    capfdbinary.readouterr()
    out = tmp_path / "page.html"
    assert run_main(monkeypatch, bad, good[1], "--format", "html", "--output", out, "--test", good[0]) == 1
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capfdbinary.readouterr() == (b"", b"")


def test_what_cannot_be_examined_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Catches a traceback, a corpus that is overwritten by its report, and an exit code that means "problems found"."""
    good = write_lines(tmp_path / "a", ["x"])
    (tmp_path / "utf16").write_bytes("x\ny\n".encode("utf-16"))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "hard").hardlink_to(good)
    cases = {
        (good, tmp_path / "none"): "none: No such file",
        (good, tmp_path / "empty"): "empty is empty; give text files with one sentence a line",
        (good, tmp_path / "utf16"): "line 1, byte 1: the file looks like UTF-16; convert it to UTF-8",
        (good, good, "--format", "xml"): "format='xml' is unknown; choose 'text', 'json' or 'html'",
        (good, good, "--output", good): "is both input and output; choose another output file",
        (good, good, "--output", tmp_path / "hard"): "is both input and output; choose another output file",
        (good, good, "--output", tmp_path / "none" / "page"): "No such file or directory; choose another output file",
    }
    for arguments, message in cases.items():
        assert run_main(monkeypatch, *arguments) == 2
        captured = capfdbinary.readouterr()
        assert message in captured.err.decode()
        assert captured.out == b""
    with pytest.raises(DataError, match="empty is empty"):
        examine(tmp_path / "empty", good)


def test_files_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    """Catches a report in which both files have the same name."""
    paths = []
    for folder, lines in zip(("en", "de"), invented(61), strict=True):
        (tmp_path / folder).mkdir()
        paths.append(write_lines(tmp_path / folder / "train.txt", lines))
    assert examine(*paths).names == (str(paths[0]), str(paths[1]))
