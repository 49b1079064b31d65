"""Spans that are hidden from the model, and put back into its translation."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transformer.text.spans import ADDRESS, KEPT_KINDS, PATTERNS, decode_letters, is_plain, kept_pattern, split_marks
from transformer.text.substitution import NAMES, SubstitutedLine

PATTERN = kept_pattern(KEPT_KINDS)


def hiding(line: str, attempt: int = 0) -> SubstitutedLine:
    """Returns a line with hidden spans, of which it has some."""
    hidden = SubstitutedLine.hiding(line, PATTERN, NAMES, attempt)
    assert hidden is not None
    return hidden


def visible(text: str) -> str:
    """Returns a text with a star for each mark."""
    return "".join("*" if character >= "\U000f0000" else character for character in text)


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("The file %s was sent to {name}.", "The file Boston was sent to Paris."),
        ("You have %d messages in %(n)d days.", "You have 25 messages in 35 days."),
        ("It takes {n}s or {price}€.", "It takes Boston or Paris."),
        ("{a}/{b}, {c}", "Boston, Paris"),
        ("option '%s%s' is", "option Boston is"),
        ("Look ('{x}') and <b>%s</b> and <b>%s now</b>.", "Look Boston and Paris and <b>Tom now</b>."),
        ("Is Boston in %s?", "Is Boston in Paris?"),
        ("Click &Open now.\\nSee it 😀!", "Click *Open now.*See it *!"),
        ("%s: see {x}", "* see Boston"),
        ("Error: %s", "Error: *"),
    ],
)
def test_what_the_model_sees(line: str, hidden: str) -> None:
    """Catches a word that the line has itself, a label taken for a part of a sentence, and a span cut in two."""
    assert visible(hiding(line).text) == hidden
    assert hiding(line).restore(hiding(line).text) == line


def test_spans_are_left_out_at_last() -> None:
    """Catches an attempt that repeats the one before it, and a line of more spans than names that fails."""
    assert [visible(hiding("see %s", attempt).text) for attempt in range(2)] == ["see Boston", "see *"]
    assert SubstitutedLine.hiding("R&D is 100 % <b>sure</b>", PATTERN, NAMES, 0) is None
    many = hiding(" ".join(["%s"] * 9))
    assert visible(many.text) == " ".join([*NAMES, "*", "*", "*"])


@pytest.mark.parametrize(
    ("line", "translation", "restored"),
    [
        ("the file %s", "die Datei Boston", "die Datei %s"),
        ("%s's file", "Bostons Datei", "%ss Datei"),
        ("see %s", "Bostonian BOSTON", "Bostonian %s"),
        ("wait %d days", "warte 250 oder 25 Tage", "warte 250 oder %d Tage"),
    ],
)
def test_words_are_replaced_by_their_spans(line: str, translation: str, restored: str) -> None:
    """Catches a part of a word replaced, a genitive that is lost, and a name in capitals that stays."""
    assert hiding(line).restore(translation) == restored


@pytest.mark.parametrize(
    ("line", "translation", "restored"),
    [
        ("delete %s?", "löschen*?", "löschen %s?"),
        ("the {x} file", "die Datei*", "die Datei {x}"),
        ("{x} is", "ist* da", "ist {x} da"),
        ("click &Open", "klicke auf* Öffnen", "klicke auf &Öffnen"),
        ("E&xit it", "es *beenden", "es &beenden"),
        ("one.\\nTwo", "Eins. *Zwei", "Eins.\\nZwei"),
        ("a 😀 b", "a*b", "a 😀 b"),
    ],
)
def test_marks_keep_their_spaces(line: str, translation: str, restored: str) -> None:
    """Catches a span glued to a word, and a space between a span and the sign that it belongs to."""
    hidden = hiding(line, 1)
    (mark,) = (stand_in.text for stand_in in hidden.stand_ins)
    assert hidden.restore(translation.replace("*", mark)) == restored


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("- I am", ("- ", "")), ("— No", ("— ", "")), ("• [x] a", ("• ", "")), ("- [x] Buy", ("- [x] ", "")),
        ("1) a", ("1) ", "")), ("## My house", ("## ", "")), ("👍🏽 Good 🇩🇪", ("👍🏽 ", " 🇩🇪")),
        ("♪ Happy ♪", ("♪ ", " ♪")), ("I ran 😀.", ("", "")),
        ('"I am', ('"', "")), ("„Ich", ("„", "")), ('"I am" he', ("", "")), ("“No”", ("", "")), ("„A‟", ("", "")),
        ("-5 degrees", ("", "")), ("—", ("", "")), ("- 5", ("", "")), ("# 8 for Iowa", ("", "")),
        ("'tis", ("", "")),
    ],
)  # fmt: skip
def test_marks_at_the_ends_of_a_line(line: str, marks: tuple[str, str]) -> None:
    """Catches a bullet that the model sees, and a sign, a number or a pair of quotation marks taken for marks."""
    before, text, after = split_marks(line)
    assert (before, after) == marks
    assert before + text + after == line


@given(st.text("aZé\u0301猫1 \n.,;:?!'’\"“”()…–-_&%@#/\\<>{}\u200d👍", max_size=20))
@example("See www.example")
@example("a.de")
def test_plain_texts_have_no_spans(text: str) -> None:
    """Catches spans that are overlooked because a text is taken for one of words alone."""
    assert not is_plain(text) or not (kept_pattern(PATTERNS).search(text) or ADDRESS.search(text))


def test_words_and_punctuation_are_plain() -> None:
    """Catches ordinary lines for which all patterns are tried."""
    assert is_plain("„Größe zählt“, sagte er – wirklich? (Ja!) It's well-known: e\u0301.\n")
    assert not any(map(is_plain, ("a.de", "5", "a_b", "R&D", "50 %", "<b>", "👍")))


def test_references_to_letters_are_read() -> None:
    """Catches a letter that the model sees as a reference, and a sign of markup that is no longer one."""
    assert decode_letters("don&#39;t &quot;&Uuml;ber&quot; &amp; &lt; &nbsp;") == 'don\'t "Über" &amp; &lt; &nbsp;'


@pytest.mark.parametrize(
    ("translation", "restored", "beside"),
    [
        ("Mein [Hund] ist da.", "Mein Köter ist da.", False),
        ("Mein Köter, [Hund].", "Mein Köter, Hund.", False),
        ("Er ist da[].", "Er ist da Köter.", True),
        ("Er ist da[.]", "Er ist da Köter.", True),
    ],
)
def test_a_term_replaces_what_corresponds_to_its_source(translation: str, restored: str, beside: bool) -> None:
    """Catches a term beside the word that it should replace, one that is there twice, and a lost sign."""
    terms = [("old dog", "Köter"), ("dog", "Rüde")]
    hidden = SubstitutedLine.hiding("My old\u00a0dog is {x}.", PATTERN, [], 1, terms)
    assert hidden is not None
    term = hidden.stand_ins[0].text
    text = translation.replace("[", term[0]).replace("]", term[-1])
    assert hidden.restore(text) == restored
    assert hidden.terms_beside(text) == [("old\u00a0dog", "Köter")] * beside
