"""Lines, tokens and pieces of text."""

import gzip
import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.errors import ConfigError, DataError
from transformer.text.line_splitting import split_line
from transformer.text.lines import LineCounts, decode_lines, read_lines
from transformer.text.sentences import sentence_spans
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS

TEXT = ["the cat sat on the mat", "der Hund läuft über die Straße", "12 345 times", "ein Äpfel und Öl"] * 30
CONTROL_LOOKALIKES = "</s> <pad> [SOS] [EOS] [PAD] <unk> <0x0A> ▁ Ġ"


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    return BytePairTokenizer.train([*TEXT, *[CONTROL_LOOKALIKES] * 50], TokenizerConfig(vocab_size=420))


ODD_LINES = ["", " ", "a\x00b", "a\u2028b", "a\u0085b", "a\x0bb\x0cc", "a\rb", "x\x1c\x1d\x1ey", "\u2029"]


def test_only_line_feed_ends_a_line(tmp_path: Path) -> None:
    """Catches `str.splitlines`, universal newlines, and other rules that end lines at other characters."""
    path = tmp_path / "odd.txt"
    path.write_bytes("\n".join(ODD_LINES).encode() + b"\n")
    assert list(read_lines(path)) == ODD_LINES
    (tmp_path / "odd.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_lines(tmp_path / "odd.txt.gz")) == ODD_LINES


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_lines_survive(lines: list[str]) -> None:
    """Catches any character that is lost on reading, except a carriage return before the line feed."""
    raw = "".join(f"{line}\n" for line in lines).encode()
    read = list(decode_lines(io.BytesIO(raw), "x", invalid="replace"))
    assert len(read) == len(lines)
    assert read[1:] == [line.removesuffix("\r") for line in lines[1:]]


def test_only_one_carriage_return_is_part_of_a_line_end() -> None:
    """Catches spaces at the end of a line that are removed with its carriage return, and other carriage returns."""
    stream = [b"a \t\r\n", b"b \n", b"c\r\r\n", b"\rd", b"\xc2\xa0\r\n"]
    counts = LineCounts()
    assert list(decode_lines(stream, "x", counts)) == ["a \t", "b ", "c\r", "\rd", "\xa0"]
    assert counts.carriage_returns == 3


def test_carriage_returns_are_stripped_and_counted_and_the_last_line_counts() -> None:
    r"""Catches `\r` kept as text, and a lost unterminated line."""
    counts = LineCounts()
    assert list(decode_lines(io.BytesIO(b"a\r\nb\r\nc"), "x", counts)) == ["a", "b", "c"]
    assert (counts.lines, counts.carriage_returns) == (3, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nbad \xff here\n", r"x.txt, line 2, byte 5: 0xff is not UTF-8"),
        (b"cut \xc3\n", r"line 1, byte 5: 0xc3 is not UTF-8"),
        (b"\xef\xbb\xbftext\n", r"line 1, byte 1: the file starts with a byte order mark"),
        ("text\n".encode("utf-16"), r"line 1, byte 1: the file looks like UTF-16"),
    ],
)
def test_what_is_not_utf8_is_refused_by_place(tmp_path: Path, content: bytes, message: str) -> None:
    """Catches silent replacement, and a message that does not say where."""
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_lines(path))


def test_replacement_on_request_is_counted() -> None:
    """Catches replacements that are not counted."""
    counts = LineCounts()
    lines = list(decode_lines(io.BytesIO(b"\xef\xbb\xbfa\nb\xff\n"), "x", counts, "replace"))
    assert lines == ["a", "b\ufffd"]
    assert counts.replaced == 2


def test_a_tokenizer_learns_from_a_word_of_very_many_characters() -> None:
    """Catches a trainer whose time grows with the square of a word: a million characters would take an hour."""
    words = "".join(random.Random(1).choices("abcdefghij", k=100_000))
    tokenizer = BytePairTokenizer.train([*TEXT, words, " " * 100_000], TokenizerConfig(vocab_size=1000))
    assert tokenizer.decode(tokenizer.encode(words)) == words


def test_damaged_and_missing_files_are_one_sentence(tmp_path: Path) -> None:
    """Catches a traceback, and a truncated archive that is read as a complete one."""
    archive = gzip.compress(b"line\n" * 5000)
    (tmp_path / "cut.gz").write_bytes(archive[: len(archive) // 2])
    (tmp_path / "plain.gz").write_bytes(b"not compressed\n")
    for name in ("cut.gz", "plain.gz"):
        with pytest.raises(DataError, match=rf"{name}: damaged or cut short"):
            list(read_lines(tmp_path / name))
    with pytest.raises(DataError, match=r"missing.txt: No such file or directory; check the path"):
        list(read_lines(tmp_path / "missing.txt"))


@settings(max_examples=300)
@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    """Catches lost spaces, unknown characters, and text that turns into control ids."""
    tokenizer = _shared_tokenizer()
    text = text.encode("utf-8", "replace").decode()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(i >= N_SPECIAL_TOKENS for i in ids)


def _shared_tokenizer(cache: list[BytePairTokenizer] = []) -> BytePairTokenizer:  # noqa: B006
    if not cache:
        cache.append(BytePairTokenizer.train(TEXT, TokenizerConfig(vocab_size=300)))
    return cache[0]


@pytest.mark.parametrize("text", [CONTROL_LOOKALIKES, "  two  spaces  ", " x", "\t\n", "日本 🙂 e\u0301", "\x00"])
def test_lookalikes_of_control_tokens_stay_text(tokenizer: BytePairTokenizer, text: str) -> None:
    """Catches special tokens that are matched in text, also when the training text contains many of them."""
    ids = tokenizer.encode(text)
    assert min(ids) >= N_SPECIAL_TOKENS
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == text


def test_a_word_is_the_same_at_the_start_and_within(tokenizer: BytePairTokenizer) -> None:
    """Catches the missing space before the first word, which doubles the vocabulary."""
    assert tokenizer.encode("cat sat")[0] == tokenizer.encode("the cat")[-1]


def test_normalization_is_optional_and_stored() -> None:
    """Catches text that is changed by default, and a stored tokenizer that forgets its normalization."""
    settings = TokenizerConfig(vocab_size=300, lowercase=True, unicode="nfc")
    lower = BytePairTokenizer.from_json(BytePairTokenizer.train(TEXT, settings).to_json())
    assert lower.decode(lower.encode("E\u0301COLE Straße")) == "école straße"
    assert _shared_tokenizer().decode(_shared_tokenizer().encode("E\u0301COLE")) == "E\u0301COLE"


def test_stored_tokenizer_encodes_the_same(tokenizer: BytePairTokenizer) -> None:
    """Catches merges or pre-tokenization lost in storage."""
    again = BytePairTokenizer.from_json(tokenizer.to_json())
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.encode_batch(TEXT) == tokenizer.encode_batch(TEXT)
    with pytest.raises(DataError, match="not a tokenizer of this package"):
        BytePairTokenizer.from_json("{}")


def test_vocabulary_size_is_what_was_asked_for() -> None:
    """Catches special tokens added to the vocabulary size, which would exceed an embedding."""
    tokenizer = _shared_tokenizer()
    assert tokenizer.vocab_size == 300
    assert max(max(row) for row in tokenizer.encode_batch(TEXT)) == 299
    with pytest.raises(ConfigError, match=r"tokenizer.vocab_size is not set"):
        BytePairTokenizer.train(TEXT, TokenizerConfig())
    with pytest.raises(DataError, match="the training text is empty"):
        BytePairTokenizer.train(["", ""], TokenizerConfig(vocab_size=300))


def test_bytes_that_fall_back_are_counted(tokenizer: BytePairTokenizer) -> None:
    """Catches merged characters counted as bytes, and spelled-out ones that are not."""
    fallback_bytes = tokenizer.fallback_bytes()
    assert sum(fallback_bytes[i] for i in tokenizer.encode("der Hund läuft")) == 0
    assert sum(fallback_bytes[i] for i in tokenizer.encode("x🙂y")) == 4


def test_pieces_are_readable(tokenizer: BytePairTokenizer) -> None:
    """Catches characters of the byte alphabet in readable pieces."""
    assert "".join(tokenizer.pieces(tokenizer.encode("die Straße"))) == "▁die▁Straße"
    assert tokenizer.pieces([0, 1, 2, 3]) == ["[PAD]", "[SOS]", "[EOS]", "[UNK]"]
    assert "<F0>" in "".join(tokenizer.pieces(tokenizer.encode("🙂")))


def test_joint_and_separate_tokenizers() -> None:
    """Catches sides that are swapped in files."""
    english, german = ["the cat"] * 20, ["die Katze"] * 20
    joint = TokenizerPair.train(lambda: english, lambda: german, TokenizerConfig(vocab_size=280))
    assert joint.is_joint
    assert TokenizerPair.from_files(joint.to_files()).is_joint
    separate = TokenizerPair.train(lambda: english, lambda: german, TokenizerConfig(vocab_size=280, joint=False))
    again = TokenizerPair.from_files(separate.to_files())
    assert not again.is_joint
    assert len(again.source.encode("the cat")) < len(again.target.encode("the cat"))


def letters(texts: list[str]) -> list[int]:
    """Counts letters without spaces, so that sizes add up when texts are joined."""
    return [len(text.replace(" ", "")) for text in texts]


@pytest.mark.parametrize(
    ("line", "limit", "pieces", "is_clean"),
    [
        ("One. Two. Three.", 14, ["One. Two. Three."], True),
        ("One. Two. Three.", 8, ["One. Two.", "Three."], True),
        ('He said "no." Then he left!', 12, ['He said "no."', "Then he left!"], True),
        ("これは長い。次の文。", 6, ["これは長い。", "次の文。"], True),
        ("one two three four", 8, ["one two", "three", "four"], False),
        ("Short. but this one has no end", 10, ["Short. but", "this one has", "no end"], False),
        ("abcdefghij", 3, ["ab", "cde", "fg", "hij"], False),
    ],
)
def test_long_lines_are_cut_where_it_hurts_least(line: str, limit: int, pieces: list[str], is_clean: bool) -> None:
    """Catches lost words, cuts that are not reported, and pieces that still do not fit."""
    split = split_line(line, sentence_spans(line), limit, letters)
    assert (split.pieces, split.is_clean) == (pieces, is_clean)


def test_words_of_pieces_are_counted_in_the_line() -> None:
    """Catches alignment links to words beyond the end of the line, after a word that is split."""
    split = split_line("one abcdefghij two", [(0, 18)], 3, letters)
    assert (split.pieces, split.words) == (["one", "ab", "cde", "fg", "hij", "two"], [0, 1, 1, 1, 1, 2])
    prefixed = split.with_prefix(">>de<< to")
    assert prefixed.pieces == [f">>de<< to {piece}" for piece in split.pieces]
    assert prefixed.words == [word for index in (2, 3, 3, 3, 3, 4) for word in (0, 1, index)]
    attached = split.with_prefix(">>de<<", is_apart=False)
    assert attached.words == [word for index in (0, 1, 1, 1, 1, 2) for word in (0, index)]
    assert split_line("一二。三四。 five", sentence_spans("一二。三四。 five"), 4, letters).words == [
        0,
        0,
        1,
    ]  # a sentence ends within a word


@given(st.text(min_size=1), st.integers(1, 12))
def test_no_character_is_lost_in_splitting(line: str, limit: int) -> None:
    """Catches dropped text: only white space may be lost."""
    pieces = split_line(line, sentence_spans(line), limit, letters).pieces
    assert all(letters([piece])[0] <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(line.split())


@given(st.text(min_size=1), st.integers(1, 12), st.integers(0, 3))
def test_pieces_fit_whatever_a_space_costs(line: str, limit: int, space: int) -> None:
    """Catches text cut off at the limit if a tokenizer uses tokens for spaces, like a character tokenizer."""

    def count(texts: list[str]) -> list[int]:
        return [len("".join(text.split())) + space * (len(text.split()) - 1) for text in texts]

    pieces = split_line(line, sentence_spans(line), limit, count).pieces
    assert all(size <= limit for size in count(pieces))
    assert "".join("".join(pieces).split()) == "".join(line.split())


def test_pieces_of_characters_are_few() -> None:
    """Catches pieces of equal size instead of as many sentences as fit: five of 7 characters with spaces exceed 35."""
    line = " ".join(["Abcdef."] * 20)
    split = split_line(line, sentence_spans(line), 35, lambda texts: [len(text) for text in texts])
    assert (set(map(len, split.pieces)), len(split.pieces), split.is_clean) == ({31}, 5, True)


@given(st.text(min_size=1), st.text(min_size=1))
def test_tokens_of_joined_texts_add_up(first: str, second: str) -> None:
    """Catches merges across a space, which the sizes in splitting exclude."""
    first, second = (text.encode("utf-8", "replace").decode().strip() for text in (first, second))
    if first and second:
        encode = _shared_tokenizer().encode
        assert encode(f"{first} {second}") == encode(first) + encode(second)
