"""The grammar of the demonstration corpus: which words fill which clauses, and how often.

The grammar is a list of cells. A cell is a product of word lists, so the number of its sentences is known, and the
sentence at any index can be generated without the others. All sentences with or without certain words form cells again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

from phrasebook.clauses import BE, FORMS, Clause, Element, Form, Predicate, slot_words
from phrasebook.phrases import (
    ARTICLES,
    NEUTRAL,
    POSSESSIVES,
    PRONOUNS,
    WHO,
    Nominal,
    Phrase,
    listed,
    noun_phrase,
    noun_phrases,
    numbers,
    with_preposition,
)
from phrasebook.words import ADJECTIVES, CITIES, NOUNS, VERBS, Noun, Verb, WordPair, adjectives

__all__ = ["Cell", "Element", "cells", "word_pairs"]

SHORTEST, LONGEST = 4, 14  # English words in a sentence

_SPECIAL = frozenset(("what", "what modal", "whom", "where"))
_GENERAL = tuple(name for name in FORMS if name not in _SPECIAL)
_TIMELESS = tuple(name for name in _GENERAL if not FORMS[name].time and name != "when")
_STATIC = tuple(name for name in _TIMELESS if not FORMS[name].modal)
_AGED = ("statement", "negative", "question", "that", "that negative", "because")
_POSITIVE = tuple(name for name in _GENERAL if not FORMS[name].negated)
_TIMED = (*(name for name in _GENERAL if FORMS[name].time and not FORMS[name].modal), "when")
_WHO_FORMS = ("statement", "late weekday", "late clock", "modal", "negative")

ObjectKind = tuple[float, bool, bool]
_PLAIN: ObjectKind = (3, False, False)  # weight, with a possessive, with an adjective
_DESCRIBED: ObjectKind = (4, False, True)
_OBJECTS = (_PLAIN, (1.5, True, False), _DESCRIBED, (1.5, True, True))

Predicates = list[tuple[float, Sequence[Predicate]]]
Subjects = tuple[tuple[float, Sequence[Nominal]], ...]


def _of_group(*groups: str) -> list[Noun]:
    return [noun for noun in NOUNS.values() if noun.group in groups]


def _people(described: bool, *groups: str) -> list[Nominal]:
    nouns = _of_group(*(groups or ("family", "others")))
    return [phrase for noun in nouns for owned in (False, True) for phrase in noun_phrases(noun, owned, described)]


def _predicate(kind: str, verb: Verb, nominal: Nominal, noun: str = "") -> Predicate:
    pairs = (*nominal.pairs, (verb.english, noun)) if noun else nominal.pairs
    if kind == "waiting":
        return Predicate(verb, complement=with_preposition("", "auf", 1, [nominal])[0], pairs=pairs)
    if kind == "dative":
        return Predicate(verb, dative=nominal, pairs=pairs)
    return Predicate(verb, accusative=nominal, pairs=pairs)


def _predicates(kind: str, verb: Verb, owned: bool, described: bool) -> list[Predicate]:
    nouns = [NOUNS[word] for word in verb.objects]
    return [_predicate(kind, verb, phrase, n.english) for n in nouns for phrase in noun_phrases(n, owned, described)]


def _transitive(kind: str, only: str = "", objects: Sequence[ObjectKind] = _OBJECTS) -> Predicates:
    """The predicates of a kind of verb, or of the verbs named, by verb and kind of object."""
    verbs = [verb for verb in VERBS[kind] if not only or verb.english in only.split()]
    return [(weight, _predicates(kind, verb, *sort)) for verb in verbs for weight, *sort in objects]


def _bare(*kinds: str) -> Predicates:
    return [(1, [Predicate(verb)]) for kind in kinds for verb in VERBS[kind]]


def _with_pronouns(pronouns: Sequence[Nominal]) -> Predicates:
    """The verbs that take people, with pronouns as objects; English splits ``pick him up``, so that verb stays out."""
    verbs = [(kind, v) for kind in ("person", "dative", "waiting") for v in VERBS[kind] if v.english != "pick up"]
    return [(1, [_predicate(kind, verb, pronoun) for pronoun in pronouns]) for kind, verb in verbs]


def _plural(noun: Noun, adjective: str = "") -> Nominal:
    """A plural with ``{}`` where its number goes."""
    phrase = noun_phrase(noun, NEUTRAL, adjective, plural=True)
    english = f"{{}} {phrase.english}"
    return replace(phrase, english=english, objective=english, german=tuple(f"{{}} {text}" for text in phrase.german))


_COUNTING = "buy sell see find need eat carry"


def _counted() -> Predicates:
    verbs = [("thing", v) for v in VERBS["thing"] if v.english in (*_COUNTING.split(), "bring along", "throw away")]
    verbs += [
        (kind, v) for kind in ("person", "dative") for v in VERBS[kind] if v.english in ("visit", "invite", "help")
    ]
    lists: Predicates = []
    for kind, verb in verbs:
        nouns = [NOUNS[word] for word in verb.objects if NOUNS[word].group != "drinks"]
        lists.append((2, [_predicate(kind, verb, _plural(noun), noun.english) for noun in nouns]))
        described = [(noun, adjective) for noun in nouns for adjective in adjectives(noun)]
        lists.append((1, [_predicate(kind, verb, _plural(noun, word), noun.english) for noun, word in described]))
    return lists


def _counted_twice() -> Predicates:
    lists: Predicates = []
    for verb in VERBS["thing"]:
        if verb.english in _COUNTING.split():
            nouns = [NOUNS[word] for word in verb.objects if NOUNS[word].group not in ("drinks", "family", "others")]
            couples = [
                (one, other) for one, other in product(nouns, nouns) if one.group == other.group and one != other
            ]
            lists.append((1, [_couple(verb, one, other) for one, other in couples]))
    return lists


def _couple(verb: Verb, one: Noun, other: Noun) -> Predicate:
    first, second = _plural(one), _plural(other)
    text = f"{first.english} and {second.english}"
    both = Nominal(text, text, ("", f"{first.german[1]} und {second.german[1]}", ""))
    return Predicate(verb, accusative=both, pairs=((verb.english, one.english), (verb.english, other.english)))


@cache
def _subjects() -> Subjects:
    return (
        (4, PRONOUNS),
        *((1.5, _people(described, group)) for described in (False, True) for group in ("family", "others")),
        (0.5, (WHO,)),
    )


@dataclass(frozen=True, slots=True)
class Family:
    """Predicates that share their subjects, forms and further word lists, with their share of the corpus."""

    share: float
    predicates: Predicates
    forms: tuple[str, ...] = _GENERAL
    subjects: Subjects = field(default_factory=_subjects)
    further: tuple[tuple[str, Sequence[Element]], ...] = ()  # slots "dative", "complement" and "number"


def _noun_subjects(*nouns: Noun, described: bool) -> list[Nominal]:
    phrases = [phrase for noun in nouns for owned in (False, True) for phrase in noun_phrases(noun, owned, described)]
    return [phrase for phrase in phrases if not phrase.negative]  # "a table is new" is not said


def _object_families() -> list[Family]:
    recipients = [noun_phrase(noun, ARTICLES[0]) for noun in _of_group("others")]
    recipients += [noun_phrase(noun, owner) for noun in _of_group("family") for owner in POSSESSIVES]
    described = [phrase for phrase in _people(True) if not phrase.negative]
    giving = _transitive("giving")
    return [
        Family(30, _transitive("thing")),
        Family(9, _transitive("person")),
        Family(2, _transitive("waiting")),
        Family(5, _transitive("dative")),
        Family(1.5, _with_pronouns(PRONOUNS), subjects=_subjects()[1:]),
        Family(1.5, _with_pronouns([*PRONOUNS[2:4], PRONOUNS[5]]), subjects=_subjects()[:1]),  # not "I call me"
        Family(3.5, giving, further=(("dative", PRONOUNS),), subjects=_subjects()[1:]),
        Family(4, giving, further=(("dative", recipients),)),
        Family(1.5, _transitive("giving", objects=(_PLAIN,)), further=(("dative", described),)),
    ]


def _number_families() -> list[Family]:
    number = ("number", numbers())
    age = Predicate(BE, complement=Phrase("{} years old", "{} Jahre alt"))
    return [
        Family(14, _counted(), _POSITIVE, further=(number,)),
        Family(10, _counted_twice(), _POSITIVE, further=(number, number)),
        Family(5, [(1, [age])], _AGED, further=(number,)),
    ]


def _place_families() -> list[Family]:
    companions = [*_people(False), *_people(True)]
    accompanied = with_preposition("with", "mit", 2, companions), with_preposition("without", "ohne", 1, companions)
    hosts, doctors = with_preposition("with", "bei", 2, companions), with_preposition("to", "zu", 2, companions)
    to_city, in_city = listed(CITIES, "to ", "nach "), listed(CITIES, "in ", "in ")
    return [
        *(Family(2, _bare("activity"), further=(("complement", phrases),)) for phrases in accompanied),
        Family(3.5, _bare("travel"), further=(("complement", to_city),)),
        Family(1.5, _bare("visiting"), further=(("complement", doctors),)),
        Family(1, _bare("residence"), _TIMELESS, further=(("complement", hosts),)),
        Family(1, _bare("residence"), _TIMELESS, further=(("complement", in_city),)),
    ]


def _benefit_families() -> list[Family]:
    """Things bought for somebody or received from somebody; one of the two noun phrases has an adjective."""
    families: list[Family] = []
    for described in (False, True):
        for verbs, preposition in (("buy write repair carry", ("for", "für", 1)), ("buy get", ("from", "von", 2))):
            objects = _transitive("thing", verbs, (_PLAIN if described else _DESCRIBED,))
            people = with_preposition(*preposition, _people(described))
            families.append(Family(1.5, objects, further=(("complement", people),)))
    return families


def _property_families() -> list[Family]:
    """Properties of things and people: ``the car is red``."""
    families: list[Family] = []
    for noun in NOUNS.values():
        words = [
            Predicate(BE, complement=Phrase(word, ADJECTIVES[word]), pairs=((word, noun.english),))
            for word in adjectives(noun)
        ]
        subjects = ((1, _noun_subjects(noun, described=False)),)
        families.append(Family(7 / len(NOUNS), [(1, words)], _STATIC, subjects))
    return families


def _families() -> list[Family]:
    transport = tuple((1, _noun_subjects(*_of_group("transport"), described=described)) for described in (False, True))
    things = [verb for verb in VERBS["thing"] if "for" not in verb.english]
    return [
        *_object_families(),
        *_number_families(),
        *_place_families(),
        *_benefit_families(),
        *_property_families(),
        Family(9, [*_bare("activity"), *((2.0, verbs) for _, verbs in _bare("state"))]),
        Family(3, _bare("departure"), _TIMED, transport),
        Family(2, [(1, [Predicate(verb)]) for verb in things], ("what", "what modal")),
        Family(0.7, _bare("person"), ("whom",)),
        Family(0.8, _bare("activity", "state"), ("where",)),
    ]


_UNFRAMED = Phrase("@", "@")


@dataclass(frozen=True, slots=True)
class Cell:
    """All sentences of one form over a product of word lists, drawn with a weight."""

    weight: float
    form: Form
    slots: tuple[str, ...]
    factors: tuple[Sequence[Element], ...]

    @property
    def size(self) -> int:
        """The number of sentences."""
        return math.prod(len(factor) for factor in self.factors)

    def sentence(self, index: int) -> tuple[str, str]:
        """Renders the sentence with this index, 0 to size - 1, as (English, German)."""
        chosen: list[Element] = []
        for factor in self.factors:
            index, position = divmod(index, len(factor))
            chosen.append(factor[position])
        return self.render(chosen)

    def render(self, chosen: Sequence[Element]) -> tuple[str, str]:
        """Renders the sentence with these elements, one for each slot."""
        parts: dict[str, Any] = dict(zip(self.slots, chosen, strict=True))
        predicate = parts["predicate"]
        if further := {slot: parts[slot] for slot in ("dative", "complement") if slot in parts}:
            predicate = replace(predicate, **further)
        subject = parts["subject"]
        clause = Clause(subject, predicate, parts.get("time"), parts.get("modal"), self.form.negated)
        frame = parts.get("frame", _UNFRAMED)
        mark = "?" if self.form.order == "question" or subject is WHO else "."
        counts: list[Any] = [part for slot, part in zip(self.slots, chosen, strict=True) if slot == "number"]
        english = frame.english.replace("@", clause.english(self.form.order)).format(*(n.english for n in counts))
        german = frame.german.replace("@", clause.german(self.form.order)).format(*(n.german for n in counts))
        return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark


def _length(element: Element) -> int:
    """Counts English words; placeholders of numbers and clauses are not words."""
    if isinstance(element, Predicate):
        further = (element.dative, element.accusative, element.complement)
        return len(element.verb.english.split()) + sum(_length(part) for part in further if part)
    return sum(token[0].isalpha() for token in element.english.split())


def _fits(cell: Cell, ranges: dict[int, tuple[int, int]]) -> bool:
    """Returns whether every sentence of the cell has an allowed length; `ranges` caches the lists by identity."""
    least, most = cell.form.added_words
    for factor in cell.factors:
        if id(factor) not in ranges:
            lengths = [_length(element) for element in factor]
            ranges[id(factor)] = min(lengths), max(lengths)
        least, most = least + ranges[id(factor)][0], most + ranges[id(factor)][1]
    return least >= SHORTEST and most <= LONGEST


def _is_said(name: str, form: Form, subject: Nominal, verb: Verb) -> bool:
    """Excludes grammatical but unidiomatic sentences: most forms with *who* as the subject, and "must need"."""
    return (subject is not WHO or name in _WHO_FORMS) and not (form.modal and verb.english == "need")


def _cells_of(family: Family, words: Mapping[str, Sequence[Element]]) -> list[Cell]:
    """Combines subjects, predicates and forms, with weights that sum to the share of the family."""
    combined: list[Cell] = []
    for (subject_weight, subjects), (predicate_weight, predicates), name in product(
        family.subjects, family.predicates, family.forms
    ):
        form = FORMS[name]
        if not (subjects and predicates and _is_said(name, form, subjects[0], predicates[0].verb)):
            continue
        named = [(slot, words[word]) for slot, word in form.slots if word]
        parts = [("subject", subjects), ("predicate", predicates), *family.further, *named]
        slots, factors = tuple(slot for slot, _ in parts), tuple(factor for _, factor in parts)
        combined.append(Cell(subject_weight * predicate_weight * form.weight, form, slots, factors))
    return combined


@cache
def cells() -> tuple[Cell, ...]:
    """Builds the whole grammar; the weights of all cells sum to the shares of the families."""
    words = slot_words()
    scaled: list[Cell] = []
    for family in _families():
        ranges: dict[int, tuple[int, int]] = {}
        fitting = [cell for cell in _cells_of(family, words) if _fits(cell, ranges)]
        scale = family.share / sum(cell.weight for cell in fitting)
        scaled += [Cell(cell.weight * scale, cell.form, cell.slots, cell.factors) for cell in fitting]
    return tuple(scaled)


@cache
def word_pairs() -> tuple[WordPair, ...]:
    """Lists every (adjective, noun) and every (verb, object noun) that the grammar combines."""
    described = [(adjective, noun.english) for noun in NOUNS.values() for adjective in adjectives(noun)]
    verbs = [(verb.english, noun) for kind in VERBS.values() for verb in kind for noun in verb.objects]
    return (*described, *verbs)
