"""Sentences of all scripts, and how they are joined."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from transformer.text.joining import join_sentences
from transformer.text.sentence_splitting import split_line
from transformer.text.sentences import BLOCK, CLUSTER, sentence_spans


def sentences(text: str, language: str = "") -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, language)]


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("zh", ["他说：“你好。”", "她笑了。", "“再见！”", "他走了。"]),  # quotes stay with their sentence
        ("", ["彼は言った。", "「元気です。」", "彼女は笑った。", "（終わり。）"]),
        ("ja", ["これは一つ目の文です．", "これは二つ目の文です．"]),  # full width
        ("", ["ｺﾚﾊﾍﾟﾝﾃﾞｽ｡", "ｱﾚﾊﾎﾝﾃﾞｽ｡"]),  # half width
        ("zh", ["３．５元。", "真的？！", "是。"]),
        ("km", ["គាត់ទៅ។", "ខ្ញុំមក។"]),
        ("my", ["သူသွားသည်။", "ငါလာသည်။"]),
    ],
)
def test_sentences_without_spaces(language: str, expected: list[str]) -> None:
    """Catches an end that is not found, and a closing quote that begins the next sentence."""
    assert sentences("".join(expected), language) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("", ["هل يريد كتاب؟", "هل يملك سيارة؟", "نعم."]),
        ("ar", ["قال د. أحمد مرحبا.", "ثم ذهب."]),
        ("", ["یہ میری کتاب ہے۔", "وہ میرا گھر ہے۔"]),
        ("", ["यह मेरी किताब है।", "वह मेरा घर है।"]),
        ("", ["ሰላም ነው።", "እንዴት ነህ፧", "ደህና።"]),
        ("hy", ["Սա գիրք է։", "Նա տուն է։"]),
        ("el", ["Τι κάνεις;", "Καλά."]),
        ("ko", ["그는 갔다.", "나는 왔다."]),
        ("ru", ["Он родился в 1990 г. в Москве.", "А. С. Пушкин писал."]),
        ("de", ["Er kam z. B. aus St. Gallen.", "Dr. Meier u. a. waren da.", "Am 3. Oktober, um 9.30 Uhr, kam Bach."]),
        ("de", ["Er sagte: „Komm!“", "Dann ging er.", "Das ist für mich.", "Ja."]),
        ("en", ["We met Dr. Meier and Mr. Young at 5 p.m. in St. Gallen.", "J. R. R. Tolkien paid 3.50 there."]),
        ("en", ["So am I.", "He gave it to me.", "It left."]),
        ("en", ['"Stop!" he said.', '"Go."', "Then he went.", "See Www.Example.Com/A.B for more."]),
        ("fr", ["« Bonjour. »", "M. Dupont est là ?", "Oui !"]),
        ("en", ["1. First item.", "2. Second item."]),
        ("th", ["เธอซื้อคอมพิวเตอร์ เขาไป"]),  # a space ends no Thai sentence for certain
    ],
)
def test_sentences_with_spaces(language: str, expected: list[str]) -> None:
    """Catches an end that is not found, and an abbreviation, initial, number or address that ends a sentence."""
    assert sentences(" ".join(expected), language) == expected


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from('.!?。 ”"aA1\n'))))
def test_sentences_have_all_of_a_text(text: str) -> None:
    """Catches characters that no sentence has: only white space may be between sentences."""
    spans = sentence_spans(text)
    bounds = [0, *(bound for span in spans for bound in span), len(text)]
    assert bounds == sorted(bounds)
    assert not "".join(text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)).strip()
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


def test_sentences_across_blocks() -> None:
    """Catches an end that is lost, or invented, where a long text is cut into blocks."""
    one = "The children of Dr. Meier sing. "
    text = one * (3 * BLOCK // len(one))
    assert sentences(text) == [one.strip()] * (len(text) // len(one))
    assert len(sentences("a" * 3 * BLOCK)) == 1


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦" * 3, "เธอซื้อคอมพิวเตอร์หนึ่งที่โรงเรียนวันนี้", "e\u0301" * 40, "🇩🇪" * 9])
def test_no_cut_is_within_a_character_that_people_see(text: str) -> None:
    """Catches a sentence that is cut between a letter and its vowel sign, or within an emoji."""
    split = split_line(text, sentence_spans(text), 9, lambda texts: [len(part) for part in texts])
    edges = {match.start() for match in regex.finditer(r"\X", text)}
    position = 0
    for piece in split.pieces:
        assert position in edges
        assert len(piece) <= 9
        position += len(piece)
    assert len(split.pieces) > 1
    assert CLUSTER.findall(text) == [part for piece in split.pieces for part in CLUSTER.findall(piece)]


def test_a_very_long_word_is_counted_in_parts() -> None:
    """Catches a word that the tokenizer sees as a whole, which takes it minutes and gigabytes."""
    longest = 0

    def count(texts: list[str]) -> list[int]:
        nonlocal longest
        longest = max(longest, *map(len, texts), 0) if texts else longest
        return [len(text) for text in texts]

    split = split_line("a" * 100_000, [(0, 100_000)], 50, count)
    assert "".join(split.pieces) == "a" * 100_000
    assert longest <= 4096


def test_pieces_have_at_most_so_many_sentences() -> None:
    """Catches pieces that are packed fuller than asked for."""
    line = "One. Two! Three? Four. Five."
    spans = sentence_spans(line)

    def pieces(max_sentences: int | None) -> list[str]:
        return split_line(line, spans, 99, lambda texts: list(map(len, texts)), max_sentences=max_sentences).pieces

    assert pieces(1) == ["One.", "Two!", "Three?", "Four.", "Five."]
    assert pieces(2) == ["One. Two!", "Three? Four.", "Five."]
    assert pieces(None) == [line]


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (["One.", "Two."], "One. Two."),
        (["你好。", "我们走。"], "你好。我们走。"),
        (["はい。", "「行く。」", "OK."], "はい。「行く。」 OK."),
        (["그는 갔다.", "", "나는 왔다."], "그는 갔다. 나는 왔다."),
        ([], ""),
    ],
)
def test_sentences_are_joined_as_their_script_does(parts: list[str], joined: str) -> None:
    """Catches a space between Chinese sentences, none between Korean ones, and two for an empty one."""
    assert join_sentences(parts) == joined
