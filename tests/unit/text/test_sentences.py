"""Sentences of all scripts, and how they are joined."""

from collections.abc import Callable

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from substitution import substitute
from transformer.text.joining import join_sentences
from transformer.text.line_splitting import split_line
from transformer.text.normalization import normalize_spaces
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


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["A bird sings.", "(The sun shines.", "Girls swim.", "A dog barks.)"]),
        ("en", ['"The sun shines.', 'Girls swim."', "A dog barks."]),
        ("en", ["(The sun shines.", "Girls swim.)", "A dog barks."]),
        ("en", ['He says: "The sun shines.', 'Girls swim."']),
        ("en", ["[Yes.]", "(No.)", "It's 'fine.'", "The dogs' tails wag."]),
        ("en", ['He said "Go." and left (at last!) with "us."', "He came."]),
        ("en", ["If x < 3, stay.", "If y > 4, go.", "<b>One.", "Two.</b>", "<i>Three.</i>"]),
        ("de", ["Er sagte: „Komm!“", "Dann ging er.", "„Halt!“, rief er.", "»Los!«", "Er ging."]),
        ("de", ["Das sind (etwa 5 Mio.!) Euro.", "(Ja.)", "Nein."]),
        ("fr", ["« Oui. »", "« Non ! » dit-il.", "Il part."]),
        ("es", ["«¿Qué?»", "«¡No!»", "Sí."]),
        ("pl", ["„Tak.", "Nie.”", "Idę."]),
        ("ru", ["«Иди.", "Беги!»", "Он ушёл."]),
    ],
)
def test_sentences_in_quotes_and_brackets(language: str, expected: list[str]) -> None:
    """Catches sentences in quotes or brackets that are one, and a quote within a sentence that ends it."""
    assert sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "ja",
            "「行こう。」と彼は言った。「はい。」「とても。」",
            ["「行こう。」と彼は言った。", "「はい。」", "「とても。」"],
        ),
        ("zh", "“真的吗？”他问。“好。”他走了。", ["“真的吗？”他问。", "“好。”", "他走了。"]),
        ("en", '"Why?" Tom asked. "No." She left.', ['"Why?" Tom asked.', '"No."', "She left."]),
        ("ru", "«Иди!» — сказал он. — Нет! — ответила она.", ["«Иди!» — сказал он.", "— Нет! — ответила она."]),
        ("ko", '"갈까?" 그가 물었다. "가자!" 하고 말했다.', ['"갈까?" 그가 물었다.', '"가자!" 하고 말했다.']),
        ("ar", '"اذهب!" قال الرجل. نعم.', ['"اذهب!" قال الرجل.', "نعم."]),
        ("he", '"לך!" אמר דן. כן.', ['"לך!" אמר דן.', "כן."]),
        ("hi", '"जाओ!" उसने कहा। हाँ।', ['"जाओ!" उसने कहा।', "हाँ।"]),
    ],
)
def test_a_clause_that_reports_a_quote_belongs_to_it(language: str, text: str, expected: list[str]) -> None:
    """Catches `he said` as a sentence of its own."""
    assert sentences(text, language) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("ru", ["Это был я.", "Он жил в г. Москва и на о. Сахалин и т. д.", "Это витамин С.", "Он полезен."]),
        ("ru", ["Поэт А. С. Пушкин и Т. Шевченко писали, т. е. Пушкин тоже."]),
        ("uk", ["Це я.", "Добре.", "Він жив у м. Київ."]),
        ("bg", ["Какво е.", "Той спи.", "Това е И. Вазов."]),
        ("ko", ["나는 집에 가.", "너는 뭐 해?", "이리 와.", "나는 자."]),
        ("vi", ["Tôi hiểu rồi ạ.", "Cảm ơn."]),
        ("pt", ["Eu sei o que é.", "Ele foi.", "Com J. Smith."]),
        ("it", ["Non so chi è.", "Tu no.", "Con J. Smith."]),
        ("fr", ["Il y en a.", "Elle part.", "Vas-y.", "Oui, avec J. Smith."]),
        ("es", ["Dijo que a.", "Luego fue con J. Smith."]),
        ("tr", ["Bu o.", "Sen git."]),
        ("el", ["Ή αυτό ή.", "Ο Γ. Παπάς ήρθε, π. χ. Αθήνα."]),
        ("pl", ["Tak i.", "Ona to wie.", "Prezydent A. Duda i o. Rydzyk."]),
        ("cs", ["Přišel a.", "Pak šel prezident V. Havel.", "To je plán B.", "To ne."]),
        ("he", ["הוא בכיתה א.", "א. ב. יהושע כתב."]),
        ("hi", ["आओ न।", "वह गया।"]),
        ("nl", ["Dank u.", "Ik kom met J. Smith."]),
        ("de", ["Er kam z. B. Aus u. a. Bremen, i. d. R. Mit d. h. Dann, s. o. Das, o. ä. Die."]),
        ("de", ["Das ist Plan B.", "Mädchen schwimmen.", "Hier ist A. Merkel."]),
        ("en", ["A woman sells plan B.", "These girls swim."]),
        ("en", ["J. R. R. Tolkien, George W. Bush (J. Smith) and Malcolm X.", "He left with J. Smith."]),
        ("en", ["He left at 5 p. m.", "She saw i. e. Foo.", "So am I.", "Tom left."]),
    ],
)  # fmt: skip
def test_words_of_one_letter(language: str, expected: list[str]) -> None:
    """Catches a last word of one letter that is taken for an initial, and an initial taken for a last word."""
    assert sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", ["Sie ist die 7. Besucherin der Ausstellung.", "Er ist der 103. Besucher der Ausstellung."]),
        ("de", ["Am 21. Oktober und am 365. Tag des Jahres kam Bach.", "Dann ging er."]),
        ("da", ["Den 103. Gæst kom.", "Han gik."]),
        ("cs", ["Přišel 103. Host.", "Odešel."]),
        ("de", ["Das war im Jahr 1990.", "Besucher kamen."]),
        ("en", ["He waited in room 103.", "Visitors came."]),  # no ordinal of English
    ],
)
def test_ordinals_of_up_to_three_digits(language: str, expected: list[str]) -> None:
    """Catches an ordinal number of three digits that ends a sentence, and a year that does not."""
    assert sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    "space", ["\xa0", "\x85", "\u2003", "\u2028", "\u202f", "\u3000", " " * 4, " " * 6, "\t", "\u200b \u200b"]
)
def test_white_space_of_any_kind_makes_no_difference(space: str) -> None:
    """Catches a library that fails on other white space, and a pattern that looks at a few characters only."""
    for code in ("en", "de", "fr", "ru", "ja", "zz"):
        assert sentences(f"See J{space}. Smith.", code) == [f"See J{space}. Smith."]
    assert (
        sentences(f"Das war 1990.{space}Dann ging er.", "de") == ["Das war 1990.", "Dann ging er."] or "\u200b" in space
    )
    assert len(sentences(f"Das war 1990.{space}Dann ging er.", "de")) == 2
    assert len(sentences(f"Er kam am 3.{space}Oktober.", "de")) == 1
    assert len(sentences(f"One.{space}Two.")) == 2


@pytest.mark.parametrize(
    "sign", ["\u200b", "\xad", "\u2060", "\u200e", "\u200f", "\u200c", "😀", "👍🏽", "¹", "*", "[1]", "…", "†"]
)
def test_a_sign_after_a_full_stop_does_not_hide_it(sign: str) -> None:
    """Catches an end that an invisible character, an emoji or the mark of a footnote hides."""
    assert sentences(f"One.{sign} Two.") == [f"One.{sign}", "Two."]
    assert sentences(f"نعم.{sign} ثم ذهب.", "ar") == [f"نعم.{sign}", "ثم ذهب."]


def test_an_ellipsis_ends_a_sentence() -> None:
    """Catches an ellipsis that ends nothing, one that ends all, and a hesitation taken for an end."""
    assert sentences("We wait… Then we go… and go…") == ["We wait…", "Then we go… and go…"]
    assert sentences("他们走了……她来了…我……我不知道。", "zh") == ["他们走了……", "她来了…我……我不知道。"]
    assert sentences("Title\n\nText.") == ["Title", "Text."]


@given(
    st.text(alphabet=st.sampled_from(".!?。… ”“\"'()«»aAbJée\u03011\xa0\u200b\u200f\u3000\t")),
    st.sampled_from(["en", "de", "ja"]),
)
def test_sentences_are_those_of_the_normalized_text(text: str, language: str) -> None:
    """Catches sentences that are counted otherwise in training, where the text is normalized."""
    normalized = normalize_spaces(text)
    assert max(1, len(sentences(text, language))) == max(1, len(sentences(normalized, language)))


class PanicException(BaseException):
    """What a failed assertion in Rust raises."""


def test_a_failure_of_the_library_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a line that ends a run over a whole file, and an interrupt that is swallowed."""

    def fail(error: BaseException) -> Callable[[str, str], list[str]]:
        def segment(*_: str) -> list[str]:
            raise error

        return segment

    substitute(monkeypatch, "sentences.segment", fail(PanicException()))
    assert sentences("One. Two! and three? 4.") == ["One.", "Two! and three? 4."]
    substitute(monkeypatch, "sentences.segment", fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sentences("One. Two.")


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
        (["他说“OK.”", "走了。"], "他说“OK.”走了。"),
        (["这是ABC", "公司。"], "这是ABC公司。"),
        (["公司ABC 3", "好。"], "公司ABC 3好。"),
        (["他说OK.", "I go.", "走了。"], "他说OK. I go. 走了。"),
        (["그는 갔다.", "", "나는 왔다."], "그는 갔다. 나는 왔다."),
        ([], ""),
    ],
)
def test_sentences_are_joined_as_their_script_does(parts: list[str], joined: str) -> None:
    """Catches a space between Chinese sentences, none between Korean ones, and two for an empty one."""
    assert join_sentences(parts) == joined
