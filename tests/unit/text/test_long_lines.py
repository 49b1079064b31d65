"""Lines that are far too long: cut, refused or read in parts, in bounded memory."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import write_lines
from transformer.data.windows import running_text
from transformer.errors import DataError
from transformer.text.lines import MAX_LINE_CHARACTERS, LineBuffer, LineCounts, read_lines, read_running_text
from transformer.tokenizers import running_text as chunks
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig


@pytest.mark.parametrize("character", ["x", "ü", "猫", "𝄞"])
def test_an_overlong_line_is_refused_or_cut(tmp_path: Path, character: str) -> None:
    """Catches a line that is skipped, cut within a character, or taken for a short one; its size is that of UTF-8."""
    most, path = 1000, tmp_path / "x.txt"
    for size, is_cut in ((most, False), (most + 1, True), (9 * most, True), (99 * most, True)):
        path.write_bytes(f"a\n{character * size}\r\nb\n{character * size}".encode())
        if is_cut:
            with pytest.raises(DataError, match=r"x.txt, line 2: more than 1,000 characters; divide it into lines"):
                list(read_lines(path, limit=most))
        counts = LineCounts()
        lines = list(read_lines(path, counts, overlong="cut", limit=most))
        assert lines == ["a", character * min(size, most + 1), "b", character * min(size, most + 1)]
        assert counts.lines == 4


def test_a_gzip_bomb_takes_little_memory(tmp_path: Path) -> None:
    """Catches an archive of a few kilobytes whose only line takes all memory."""
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        for _ in range(64):
            file.write(b"0" * (1 << 20))
    tracemalloc.start()
    try:
        (line,) = read_lines(tmp_path / "bomb.gz", overlong="cut")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(line) == MAX_LINE_CHARACTERS + 1
    assert peak < 16 << 20


@pytest.mark.parametrize("character", ["x", "ü", "猫", "𝄞"])
def test_a_line_that_arrives_in_parts_is_cut_like_one_of_a_file(character: str) -> None:
    """Catches a line from a pipe whose beginning is joined to its end, and time that grows with its square."""
    for size in (10, 11, 60, 999):
        whole = (character * size).encode()
        line = LineBuffer(10)
        for start in range(0, len(whole), 7):
            line.add(whole[start : start + 7])
        text = line.take().decode()
        assert text == character * len(text)
        assert len(text) == size if size <= 10 else len(text) > 10
        line.add(b"next")
        assert line.take() == b"next"


LINES = ["one two", "", "word " * 40, "猫 ü𝄞" * 30, "x" * 333, " a  b ", "last"]


@pytest.mark.parametrize("most", [16, 17, 18, 19, 64, 1 << 16])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_parts_of_running_text_are_the_whole(tmp_path: Path, most: int, end: str) -> None:
    """Catches a character that is lost or cut between two parts, and a line end that is added within a line."""
    path = tmp_path / "x.txt"
    path.write_bytes("\r\n".join(LINES).encode() + end.encode())
    parts = list(read_running_text(path, limit=most))
    assert "".join(parts) == "".join(f"{line}\n" for line in LINES)
    assert max(len(part.encode()) for part in parts) <= most + 1
    assert list(read_running_text(path)) == list(running_text([path])) == [f"{line}\n" for line in LINES]


def test_mistakes_in_parts_are_placed(tmp_path: Path) -> None:
    """Catches line numbers that count the parts of a line."""
    path = tmp_path / "x.txt"
    path.write_bytes(b"a" * 99 + b"\nb\nc\xff\n")
    with pytest.raises(DataError, match=r"x.txt, line 3, byte 2: 0xff is not UTF-8"):
        list(read_running_text(path, limit=16))
    assert not list(read_running_text(write_lines(path, [])))


def test_long_lines_of_running_text_have_the_tokens_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a word that is cut where a space could be, and chunks that are never full of few long lines."""
    text = "".join(f"{line}\n" for line in LINES) * 9
    tokenizer = BytePairTokenizer.train([text], TokenizerConfig(vocab_size=400))
    whole = tokenizer.encode_running([text])[0]
    for most in (100, 350, 1000):
        monkeypatch.setattr(chunks, "MAX_CHARACTERS", most)
        encoded = list(chunks.encode_lines(tokenizer, text.splitlines(keepends=True)))
        ids = [token for _, part in encoded for token in part]
        assert tokenizer.decode_running(ids) == text
        if most >= 350:  # all words fit
            assert ids == whole
        assert all(len(chunk.text) < 2 * most for chunk in chunks.split_chunks(text.splitlines(keepends=True)))


@given(st.lists(st.text("a \n猫", max_size=40)), st.integers(1, 9))
def test_no_part_is_lost(lines: list[str], most: int) -> None:
    """Catches a loop without an end, and text lost at a cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MAX_CHARACTERS", most)
        assert "".join(chunk.text for chunk in chunks.split_chunks(lines)) == "".join(lines)
