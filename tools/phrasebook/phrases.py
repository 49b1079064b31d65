"""The phrases of the demonstration corpus: declined noun phrases, pronouns, numbers, dates and clock times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from phrasebook.words import ADJECTIVES, IRREGULAR_PLURALS, IRREGULAR_STEMS, MONTHS, Forms, Noun, WordPair, adjectives

__all__ = [
    "ARTICLES",
    "NEUTRAL",
    "POSSESSIVES",
    "PRONOUNS",
    "WHO",
    "Determiner",
    "Nominal",
    "Phrase",
    "clock_times",
    "dates",
    "german_number",
    "listed",
    "noun_phrase",
    "noun_phrases",
    "numbers",
    "with_preposition",
    "with_s",
]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A fixed expression: an adverb, a date, a number, or a frame with ``@`` where a clause goes."""

    english: str
    german: str
    pairs: tuple[WordPair, ...] = ()


@dataclass(frozen=True, slots=True)
class Nominal:
    """A subject or object: its English, its German in each case, and the (adjective, noun) pairs inside it."""

    english: str
    objective: str
    german: Forms  # nominative, accusative, dative
    person: int = 2  # index into a verb's present tense: ich, du, er, and one for wir and sie
    pronoun: bool = False
    negative: Forms = ()  # the same with "kein", where German negates the noun instead of the verb
    pairs: tuple[WordPair, ...] = ()


@dataclass(frozen=True, slots=True)
class Determiner:
    """An article or possessive: English singular and plural ("" where it has none), German forms, its adjectives."""

    english: str
    english_plural: str
    forms: tuple[Forms, ...]
    adjective_endings: tuple[Forms, ...]


# Rows: nominative, accusative, dative. Columns: masculine, feminine, neuter, plural.
_STRONG = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
_MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
_WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
_EIN = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
_DER = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
_ONE_EACH = ("mother", "father")  # "my mothers" is grammatical but hardly said
_NOTHING = (("",) * 4,) * 3


def _stemmed(stem: str, endings: tuple[Forms, ...]) -> tuple[Forms, ...]:
    return tuple(tuple(stem + ending for ending in row) for row in endings)


_THE = Determiner("the", "the", _DER, _WEAK)
_NO = Determiner("no", "no", _stemmed("kein", _EIN), _MIXED)
_A = Determiner("a", "", _stemmed("ein", _EIN), _MIXED)
_THIS = Determiner("this", "these", _stemmed("dies", _STRONG), _WEAK)
NEUTRAL = Determiner("", "", _NOTHING, _STRONG)
ARTICLES = (_THE, _A, _THIS)
_OWNERS = "my mein, your dein, his sein, her ihr, our unser, their ihr"
POSSESSIVES = tuple(
    Determiner(english, english, _stemmed(stem, _EIN), _MIXED)
    for english, stem in (owner.split() for owner in _OWNERS.split(", "))
)

PRONOUNS = (
    Nominal("I", "me", ("ich", "mich", "mir"), 0, pronoun=True),
    Nominal("you", "you", ("du", "dich", "dir"), 1, pronoun=True),
    Nominal("he", "him", ("er", "ihn", "ihm"), 2, pronoun=True),
    Nominal("she", "her", ("sie", "sie", "ihr"), 2, pronoun=True),
    Nominal("we", "us", ("wir", "uns", "uns"), 3, pronoun=True),
    Nominal("they", "them", ("sie", "sie", "ihnen"), 3, pronoun=True),
)
WHO = Nominal("who", "whom", ("wer", "wen", "wem"), 2, pronoun=True)

_UNITS = ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf")
_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    **{"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"},
    **{"twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"},
}
_GERMAN_ORDINALS = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}


def with_s(word: str) -> str:
    """Appends the English s of plural nouns and of verbs after he: ``tidy up`` gives ``tidies up``."""
    first, space, rest = word.partition(" ")
    if first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ies"
    else:
        first += "es" if first.endswith(("s", "sh", "ch", "x", "o")) else "s"
    return first + space + rest


def listed(text: str, english: str = "", german: str = "") -> list[Phrase]:
    """Parses ``"Monday/Montag, Tuesday/Dienstag"``, putting the given words in front of each."""
    pairs = (entry.split("/") for entry in text.split(", "))
    return [Phrase(english + source, german + target) for source, target in pairs]


def _german(noun: Noun, determiner: Determiner, adjective: str, column: int) -> Forms:
    stem = IRREGULAR_STEMS.get(ADJECTIVES[adjective], ADJECTIVES[adjective]) if adjective else ""
    forms: list[str] = []
    for case in range(3):
        word = noun.german_plural if column == 3 or (noun.weak and case) else noun.german
        if column == 3 and case == 2 and word[-1] not in "ns":
            word += "n"
        described = stem + determiner.adjective_endings[case][column] if adjective else ""
        forms.append(" ".join(filter(None, (determiner.forms[case][column], described, word))))
    return tuple(forms)


def noun_phrase(noun: Noun, determiner: Determiner, adjective: str = "", plural: bool = False) -> Nominal:
    """Declines a determiner, an adjective ("" for none) and a noun together."""
    column = 3 if plural else noun.gender
    english = IRREGULAR_PLURALS.get(noun.english, with_s(noun.english)) if plural else noun.english
    described = f"{adjective} {english}" if adjective else english
    article = determiner.english_plural if plural else determiner.english
    if article == "a" and described[0] in "aeiou":
        article = "an"
    text = f"{article} {described}".strip()
    german = _german(noun, determiner, adjective, column)
    negative = _german(noun, _NO, adjective, column) if determiner in (_A, NEUTRAL) else ()
    pairs = ((adjective, noun.english),) if adjective else ()
    return Nominal(text, text, german, 3 if plural else 2, negative=negative, pairs=pairs)


def _numbers_of(noun: Noun, determiner: Determiner) -> Sequence[bool]:
    if noun.group == "drinks":
        return () if determiner is _A else (False,)
    if determiner is NEUTRAL:
        return (True,)
    only_one = determiner.english_plural == "" or (determiner in POSSESSIVES and noun.english in _ONE_EACH)
    return (False,) if only_one else (False, True)


@cache
def noun_phrases(noun: Noun, owned: bool, described: bool) -> tuple[Nominal, ...]:
    """Lists the noun phrases of one noun: with possessives or with articles, with one adjective or with none."""
    determiners = POSSESSIVES if owned else (*ARTICLES, NEUTRAL) if described else ARTICLES
    if noun.group == "others" and owned:
        return ()
    if noun.group == "family" and not owned:
        determiners = (_THE,)
    return tuple(
        noun_phrase(noun, determiner, adjective, plural)
        for determiner in determiners
        for plural in _numbers_of(noun, determiner)
        for adjective in (adjectives(noun) if described else ("",))
    )


def german_number(number: int) -> str:
    """Spells a number from 0 to 99 in German as it stands before a noun; 1 stands alone as ``eins``."""
    if number <= 12:
        return _UNITS[number]
    tens, unit = divmod(number, 10)
    if tens == 1:
        return {6: "sech", 7: "sieb"}.get(unit, _UNITS[unit]) + "zehn"
    return (("ein" if unit == 1 else _UNITS[unit]) + "und" if unit else "") + _TENS[tens]


def _english_number(number: int) -> str:
    if number < 20:
        return _ENGLISH_UNITS.split()[number]
    tens, unit = divmod(number, 10)
    return _ENGLISH_TENS[tens] + (f"-{_ENGLISH_UNITS.split()[unit]}" if unit else "")


def numbers() -> list[Phrase]:
    """Lists the numbers from 2 to 99."""
    return [Phrase(_english_number(number), german_number(number)) for number in range(2, 100)]


def _ordinal(day: int) -> Phrase:
    tens, hyphen, last = _english_number(day).rpartition("-")
    english = tens + hyphen + _ORDINALS.get(last, last + "th")
    german = _GERMAN_ORDINALS.get(day, german_number(day) + ("ten" if day < 20 else "sten"))
    return Phrase(english, german)


def dates() -> list[Phrase]:
    """Lists the days of every month: ``on the third of May`` is ``am dritten Mai``."""
    lengths = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    days = [
        (_ordinal(day), month)
        for month, last in zip(listed(MONTHS), lengths, strict=True)
        for day in range(1, last + 1)
    ]
    return [Phrase(f"on the {d.english} of {month.english}", f"am {d.german} {month.german}") for d, month in days]


def clock_times() -> list[Phrase]:
    """Lists six times for every hour: ``at half past seven`` is ``um halb acht``."""
    times: list[Phrase] = []
    for hour in range(1, 13):
        english, german = _english_number(hour), german_number(hour)
        times.append(Phrase(f"at {english} o'clock", f"um {german.removesuffix('s') if hour == 1 else german} Uhr"))
        times.append(Phrase(f"at half past {english}", f"um halb {german_number(hour % 12 + 1)}"))
        for minutes, spelled in (("a quarter", "Viertel"), ("ten", "zehn")):
            times.append(Phrase(f"at {minutes} past {english}", f"um {spelled} nach {german}"))
            times.append(Phrase(f"at {minutes} to {english}", f"um {spelled} vor {german}"))
    return times


def with_preposition(english: str, german: str, case: int, nominals: Iterable[Nominal]) -> list[Phrase]:
    """Puts a preposition before each nominal, contracted where German contracts it: ``von dem`` is ``vom``."""
    contractions = {"von dem ": "vom ", "bei dem ": "beim ", "zu dem ": "zum ", "zu der ": "zur "}
    phrases: list[Phrase] = []
    for nominal in nominals:
        text = f"{german} {nominal.german[case]}"
        for long, short in contractions.items():
            text = text.replace(long, short)
        phrases.append(Phrase(f"{english} {nominal.objective}".strip(), text, nominal.pairs))
    return phrases
