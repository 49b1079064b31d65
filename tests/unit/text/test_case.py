"""Letter case: what is found in capitals or Title Case, its ordinary case, and the way back."""

from functools import partial

import pytest

from transformer.text.case import (
    ALL_CASES,
    CaseRun,
    Truecaser,
    line_case,
    may_be_changed,
    restore_case,
    to_capitals,
    to_lower,
)

WORDS = """
    the a is in we I it us you Tom Der der Zug ist spät Fußball schön Straße wichtig sehr für uns dass OK train late und
    Die die alte Mann fährt nach Kennen kennen Sie sie Ihre ihre Big big dogs live here never
"""
KNOWN = {word: rank for rank, word in enumerate(WORDS.split(), start=1)}


def cost(word: str) -> tuple[int, int]:
    """Returns one token for a known word, and one for each letter of another."""
    return (1, KNOWN[word]) if word in KNOWN else (len(word), 99 * len(word))


def truecase(text: str, language: str = "de", **options: list[tuple[int, int]]) -> str:
    return Truecaser(cost, language).truecase(text, ALL_CASES, **options).text if may_be_changed(text) else text


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        ("DER ZUG IST SPÄT.", "Der Zug ist spät."),  # nouns
        ("FUSSBALL IST SCHÖN, DASS TOM", "Fußball ist schön, dass Tom"),  # ß, and ss that stays
        ("TOM UND DIE STRASSE", "Tom und die Straße"),  # "Die" is more frequent, but it begins sentences
        ("DIE STRAßE. IST SCHÖN", "Die Straße. Ist schön"),  # the start of a sentence, and ß among capitals
        ("«DER ZUG IST SPÄT»", "«Der Zug ist spät»"),  # a mark before the first word
        ("Das ist SEHR WICHTIG für uns.", "Das ist sehr wichtig für uns."),  # a run within a line
        ("Das ist WICHTIG für uns.", "Das ist wichtig für uns."),
        ("MEIN iPhone IST SCHÖN", "Mein iPhone ist schön"),  # a mixed name
        ("DER ZUG IST IN USA", "Der Zug ist in USA"),  # a short word that is not known in any case
        ("OK", "OK"), ("NATO", "NATO"), ("SCHÖN!", "Schön!"),  # a word alone
        ("Die Alte Ist Spät.", "Die alte ist spät."),  # Title Case
    ],
)  # fmt: skip
def test_capitals_get_their_ordinary_case(text: str, ordinary: str) -> None:
    """Catches nouns and names in lower case, a lost ß, starts of sentences, and runs that are missed."""
    assert truecase(text) == ordinary


@pytest.mark.parametrize(
    "text",
    [
        "Die EU und die NATO sind für uns wichtig.",  # acronyms side by side with words
        "Ein Boot namens GRAHAM fährt nach Rom.",  # a name that the vocabulary does not know
        "Das ist SEHR wichtig.",  # a short word alone may be an acronym
        "Kennen Sie Ihre Stärken?",  # polite forms are no Title Case
        "Der Mann fährt nach Rom.", "Tom und Maria Müller", "Der Zug", "der zug ist spät", "", "7 ...",
    ],
)  # fmt: skip
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    """Catches acronyms, names and nouns that lose their capitals."""
    assert truecase(text) == text


def test_english_title_case_and_the_pronoun() -> None:
    """Catches "i" for "I", and Title Case that is not seen where short words are in lower case."""
    assert truecase("THE TRAIN IS LATE, I'M IN IT", "en") == "The train is late, I'm in it"
    assert truecase("The Big Dogs Live Here in the Train", "en") == "The big dogs live here in the train"
    assert truecase("The Big Dogs never Live Here", "en") == "The Big Dogs never Live Here"


def test_turkish_letters_keep_their_dots() -> None:
    """Catches i for I and I for i, which are other letters in Turkish, and a combining dot elsewhere."""
    assert (to_lower("ISPARTA İYİ", "tr"), to_capitals("iyi ısı", "tr")) == ("ısparta iyi", "İYİ ISI")
    assert (to_lower("İYI", "de"), to_capitals("Straße", "de")) == ("iyi", "STRASSE")


def test_kept_spans_and_cases_that_the_model_knows() -> None:
    """Catches an address or a code that loses its capitals, and a case that is changed although the model knows it."""
    assert truecase("DER ZUG HTTP://A.DE/X IST SPÄT", kept=[(8, 21)]) == "Der Zug HTTP://A.DE/X ist spät"
    known = partial(Truecaser(cost, "de").truecase, cases=["title"])
    assert known("DER ZUG IST SPÄT").runs == ()
    assert known("Die Alte Ist Spät").runs == (CaseRun("title", 0, 4, is_whole=True),)


def test_the_case_comes_back() -> None:
    """Catches a translation in ordinary case, one whose kept words are changed, and words outside of a run."""
    capitals = CaseRun("capitals", 0, 9, is_whole=True)
    assert restore_case("Die Straße, https://a.b", capitals, "de", [(12, 23)]) == "DIE STRASSE, https://a.b"
    assert (
        restore_case("This is very important to us.", capitals, "en", words={2, 3}) == "This is VERY IMPORTANT to us."
    )
    title = CaseRun("title", 0, 9, is_whole=True, has_small=True)
    assert restore_case("the don't-care dog in the house", title, "en") == "The Don't-Care dog in the House"


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("DER ZUG IST SPÄT.", "capitals"), ("DIE STRAßE IST", "capitals"), ("Der Zug Ist Spät.", "title"),
        ("Der Zug ist spät.", None), ("NATO EU", None), ("Guten Morgen", None), ("der zug ist", None), ("1 2 3", None),
        ("Der McDonald Ist", None),
    ],
)  # fmt: skip
def test_lines_of_the_training_text_by_case(line: str, case: str | None) -> None:
    """Catches sentences, acronyms or greetings that count as capitals or Title Case."""
    assert line_case(line) == case
