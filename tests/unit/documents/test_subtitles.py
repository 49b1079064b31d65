"""Subtitles: sentences across cues, and what stays as it is."""

import pytest

from transformer.errors import DataError
from translated_documents import parsed, translated

SRT = """1
00:00:01,000 --> 00:00:02,500
Where is the station?

2
00:00:03,000 --> 00:00:04,000
{\\an8}<i>The train leaves
at noon.</i>

3
00:00:05,000 --> 00:00:06,000
We have been waiting here

4
00:00:06,100 --> 00:00:07,000
for more than
three hours.

5
00:00:08,000 --> 00:00:09,000
- Really?
- Yes.
"""
VTT = """WEBVTT - A title

STYLE
::cue { color: red }

NOTE a note to keep

first
00:01.000 --> 00:02.000 position:10% line:0
<v Ann>Salt &amp; pepper <00:01.500><c.x>now</c>

00:00:03.000 --> 00:00:04.000
1 < 2
"""


def texts(content: str, form: str = "srt") -> list[str]:
    return [segment.text for segment in parsed(content.encode(), form).segments]


def test_cues_of_a_sentence_are_one_segment() -> None:
    assert texts(SRT) == [
        "Where is the station?",
        "<x0/><x1>The train leaves at noon.</x1>",
        "We have been waiting here for more than three hours.",
        "- Really?\n- Yes.",
    ]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (SRT.encode(), "srt"), (VTT.encode(), "vtt"), (SRT.replace("\n", "\r\n").encode(), "srt"),
        (b"\xef\xbb\xbf" + SRT.encode(), "srt"), (b"\xff\xfe" + SRT.encode("utf-16-le"), "srt"),
        (SRT.strip().encode(), "srt"), (SRT.replace("\n\n", "\n \n\n").encode(), "srt"), (b"", "srt"),
    ],
)  # fmt: skip
def test_a_file_comes_back_as_it_was(content: bytes, form: str) -> None:
    once, report = translated(content, form)
    assert report.refused == 0
    assert once != content or not content
    assert translated(once, form)[0] == content


def test_entities_settings_and_notes_of_webvtt_stay() -> None:
    out = translated(VTT.encode(), "vtt")[0].decode()
    assert "<v Ann>sALT &amp; PEPPER <00:01.500><c.x>NOW</c>\n" in out
    assert out.startswith(VTT.partition("<v")[0])


def test_a_translation_is_laid_back_by_length() -> None:
    def translate(line: str) -> str:
        return "Wir warten hier schon seit mehr als drei langen Stunden" if line.startswith("We") else line

    out = translated(SRT.encode(), "srt", translate)[0].decode()
    assert "05,000 --> 00:00:06,000\nWir warten hier schon seit\n" in out
    assert "06,100 --> 00:00:07,000\nmehr als drei\nlangen Stunden\n" in out


def test_a_line_that_is_too_long_is_divided() -> None:
    translation = "Koennen Sie mir bitte sagen, wo ich hier den Bahnhof finde?"
    out = translated(SRT.encode(), "srt", lambda line: translation if "Where" in line else line)[0].decode()
    assert "Koennen Sie mir bitte sagen,\nwo ich hier den Bahnhof finde?\n" in out


@pytest.mark.parametrize(
    ("translation", "reason"),
    [
        ("Wo ist hier bitte der naechste Bahnhof?", "the cue shows more than 20 characters a second"),
        ("Wo ist denn hier der Bahnhof?", ""),
        ("Donaudampfschifffahrtsgesellschaftskapitaensmuetze", "a line has more than 42 characters"),
    ],
)
def test_a_cue_that_cannot_be_read_in_its_time_is_marked_and_counted(translation: str, reason: str) -> None:
    """Catches a translation that is gone before it is read: the first cue shows for 1.5 s, at most 30 characters."""
    content = "WEBVTT\n\n" + SRT.replace(",", ".")
    out, report = translated(content.encode(), "vtt", lambda line: translation if "Where" in line else line)
    assert (report.unsure, report.refused, dict(report.reasons)) == ((1, 0, {reason: 1}) if reason else (0, 0, {}))
    assert translation.split()[-1] in out.decode()
    assert (f"NOTE unsure: {reason}\n\n1\n" in out.decode()) == bool(reason)


def test_a_cue_that_was_fast_may_stay_so() -> None:
    fast = "1\n00:00:01,000 --> 00:00:01,500\nThis is much too long for half a second\n"
    assert translated(fast.encode(), "srt")[1].unsure == 0
    assert translated(fast.encode(), "srt", lambda line: line + " more")[1].unsure == 1


def test_what_cannot_be_laid_back_is_left_with_a_note() -> None:
    out, report = translated(SRT.encode(), "srt", lambda line: "Nein" if line.startswith("We") else line)
    assert (out, report.refused) == (SRT.encode(), 1)
    assert [(problem.place, str(problem)) for problem in report.problems] == [
        ("name:12", "left untranslated: the translation has too few words for 2 cues")
    ]
    out, _ = translated(VTT.encode(), "vtt", lambda line: line.replace("<x0/>", "").replace("2", "3"))
    assert b"\n\nNOTE not translated: the translation lacks '<v Ann>'\n\nfirst\n" in out


def test_cues_without_an_empty_line_between_them_are_found() -> None:
    dense = SRT.replace("\n\n", "\n")
    assert texts(dense) == texts(SRT)
    assert translated(translated(dense.encode(), "srt")[0], "srt")[0] == dense.encode()


def test_other_files_are_refused() -> None:
    with pytest.raises(DataError, match="line 1: no line has the time of a subtitle"):
        parsed(b"Hello\n", "srt")
    with pytest.raises(DataError, match="line 4: 0xe9 is not UTF-8"):
        parsed(SRT.replace("Where", "1\n\xe9").encode("latin-1"), "srt")
    for text in ("1\n" * 20_000, "00:00:01,000 --> 00:00:02,000\na\n" * 5_000, "<" * 50_000, "&" * 50_000):
        assert translated(b"WEBVTT\n\n00:01.000 --> 00:02.000\n" + text.encode(), "vtt")[1].kept < 2
