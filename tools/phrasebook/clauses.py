"""The clauses of the demonstration corpus: word order, verb forms and negation in English and in German."""

from collections.abc import Sequence
from dataclasses import dataclass

from phrasebook.phrases import (
    ARTICLES,
    POSSESSIVES,
    PRONOUNS,
    Nominal,
    Phrase,
    clock_times,
    dates,
    listed,
    noun_phrase,
    with_s,
)
from phrasebook.words import ADJECTIVES, ADVERBS, MODALS, MONTHS, NOUNS, VERBS, WEEKDAYS, Modal, Verb, WordPair

__all__ = ["BE", "FORMS", "Clause", "Element", "Form", "Predicate", "slot_words"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A verb with its objects and complement, and all (adjective, noun) and (verb, object noun) pairs inside it."""

    verb: Verb
    dative: Nominal | None = None
    accusative: Nominal | None = None
    complement: Phrase | None = None
    pairs: tuple[WordPair, ...] = ()


Element = Nominal | Predicate | Phrase | Modal
BE = Verb("be", "", "sein", ("bin", "bist", "ist", "sind"))
_ENGLISH_BE = ("am", "are", "is", "are")


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause, to be rendered as a main clause, with its time fronted, as a question, or as a subordinate clause."""

    subject: Nominal
    predicate: Predicate
    time: Phrase | None = None
    modal: Modal | None = None
    negated: bool = False

    def _auxiliary_and_rest(self) -> tuple[str, str]:
        base = self.predicate.verb.english
        if base == "be":
            return _ENGLISH_BE[self.subject.person], ""
        if self.modal and self.modal.english != "want to":
            return self.modal.english, base
        return ("does" if self.subject.person == 2 else "do"), f"want to {base}" if self.modal else base

    def _english_core(self, order: str) -> list[str]:
        auxiliary, rest = self._auxiliary_and_rest()
        subject = self.subject.english
        if order == "question":
            return [auxiliary, subject, rest]
        if self.negated:
            return [subject, "cannot" if auxiliary == "can" else f"{auxiliary} not", rest]
        if auxiliary not in ("do", "does"):
            return [subject, auxiliary, rest]
        return [subject, with_s(rest) if auxiliary == "does" else rest]

    def english(self, order: str = "main") -> str:
        """Renders the clause in English; `order` is main, fronted, question or subordinate."""
        predicate, time = self.predicate, self.time.english if self.time else ""
        objects = [nominal.objective for nominal in (predicate.dative, predicate.accusative) if nominal]
        complement = predicate.complement.english if predicate.complement else ""
        words = [*self._english_core(order), *objects, complement]
        words = [time, *words] if order == "fronted" else [*words, time]
        return " ".join(filter(None, words))

    def _german_middle(self, time: str) -> list[str]:
        """Returns everything between the brackets that the finite verb and the clause-final verb form."""
        dative, accusative, complement = self.predicate.dative, self.predicate.accusative, self.predicate.complement
        objects = [(nominal, case) for nominal, case in ((dative, 2), (accusative, 1)) if nominal]
        last = objects[-1][0] if objects else None
        with_kein = self.negated and last is not None and bool(last.negative)
        texts = [(n.negative if with_kein and n is last else n.german)[case] for n, case in objects]
        pronouns = [text for text, (nominal, _) in zip(texts, objects, strict=True) if nominal.pronoun]
        nouns = [text for text, (nominal, _) in zip(texts, objects, strict=True) if not nominal.pronoun]
        negation = "nicht" if self.negated and not with_kein else ""
        return [*pronouns, time, *nouns, negation, complement.german if complement else ""]

    def german(self, order: str = "main") -> str:
        """Renders the clause in German; `order` as for `english`."""
        verb, person, subject = self.predicate.verb, self.subject.person, self.subject.german[0]
        time = self.time.german if self.time else ""
        middle = self._german_middle("" if order == "fronted" else time)
        infinitive = verb.prefix + verb.infinitive if self.modal else ""
        finite = (self.modal or verb).present[person]
        if order == "subordinate":
            ending = [infinitive, finite] if self.modal else [verb.prefix + finite]
            words = [subject, *middle, *ending]
        else:
            start = [subject, finite] if order == "main" else [finite, subject]
            words = [time if order == "fronted" else "", *start, *middle, infinitive or verb.prefix]
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Form:
    """A way to use a clause: the word lists that join subject and predicate, and the frame around the clause."""

    weight: float
    order: str = "main"
    time: str = ""
    modal: str = ""
    frame: str = ""
    negated: bool = False

    @property
    def slots(self) -> tuple[tuple[str, str], ...]:
        """Slots of the form, each with the name of its word list or ""."""
        return ("time", self.time), ("modal", self.modal), ("frame", self.frame)

    @property
    def added_words(self) -> tuple[int, int]:
        """Minimum and maximum number of English words that order and negation add."""
        most = 2 * self.negated + (self.order == "question")
        return (0 if self.modal else most), most


# German negation wants definite objects before the time, so a negated clause takes its time in front or not at all.
FORMS = {
    "statement": Form(7.0),
    "late adverb": Form(3.0, time="adverb"),
    "late weekday": Form(2.0, time="weekday"),
    "late month": Form(1.5, time="month"),
    "late clock": Form(2.0, time="clock"),
    "late date": Form(6.5, time="date"),
    "early adverb": Form(3.0, "fronted", time="adverb"),
    "early weekday": Form(2.0, "fronted", time="weekday"),
    "early month": Form(1.5, "fronted", time="month"),
    "early clock": Form(2.0, "fronted", time="clock"),
    "early date": Form(6.5, "fronted", time="date"),
    "modal": Form(4.0, modal="modal"),
    "modal late": Form(1.5, time="adverb", modal="modal"),
    "modal early": Form(2.0, "fronted", time="weekday", modal="modal"),
    "negative": Form(4.0, negated=True),
    "negative early": Form(2.0, "fronted", time="weekday", negated=True),
    "negative modal": Form(2.0, modal="deniable", negated=True),
    "question": Form(4.0, "question"),
    "question late": Form(2.0, "question", time="adverb"),
    "question modal": Form(2.0, "question", modal="askable"),
    "when": Form(2.0, "question", frame="when"),
    "why": Form(2.0, "question", frame="why"),
    "what": Form(2.0, "question", frame="what"),
    "what modal": Form(1.0, "question", modal="askable", frame="what"),
    "whom": Form(2.0, "question", frame="whom"),
    "where": Form(2.0, "question", frame="where"),
    "that": Form(3.0, "subordinate", frame="that"),
    "that late": Form(1.5, "subordinate", time="adverb", frame="that"),
    "that modal": Form(2.0, "subordinate", modal="modal", frame="that"),
    "that negative": Form(1.5, "subordinate", frame="that", negated=True),
    "because": Form(3.0, "subordinate", frame="because"),
    "because modal": Form(1.5, "subordinate", modal="modal", frame="because"),
    "when clause": Form(2.0, "subordinate", frame="whenever"),
    "if": Form(3.0, "subordinate", frame="if"),
}


def _simple_subjects() -> list[Nominal]:
    determiners = {"family": POSSESSIVES[0], "others": ARTICLES[0]}
    people = [noun for noun in NOUNS.values() if noun.group in determiners]
    return [*PRONOUNS, *(noun_phrase(noun, determiners[noun.group]) for noun in people)]


def _main_clauses() -> list[Clause]:
    """Short main clauses to which a reason or a condition is attached."""
    verbs = [verb for verb in (*VERBS["activity"], *VERBS["state"]) if " " not in verb.english and not verb.prefix]
    clauses = [Clause(subject, Predicate(verb)) for subject in _simple_subjects() for verb in verbs]
    moods = [Predicate(BE, complement=Phrase(mood, ADJECTIVES[mood])) for mood in ("happy", "tired")]
    return clauses + [Clause(subject, mood) for subject in PRONOUNS for mood in moods]


def slot_words() -> dict[str, Sequence[Element]]:
    """Returns the word lists that the forms refer to."""
    says = [Clause(subject, Predicate(verb)) for subject in _simple_subjects() for verb in VERBS["saying"]]
    mains = _main_clauses()
    return {
        "adverb": listed(ADVERBS),
        "weekday": listed(WEEKDAYS, "on ", "am "),
        "month": listed(MONTHS, "in ", "im "),
        "clock": clock_times(),
        "date": dates(),
        "modal": MODALS,
        "askable": MODALS[:3],
        "deniable": MODALS[:2],  # "must not" and "may not" do not mean "muss nicht" and "darf nicht"
        "when": [Phrase("when @", "wann @")],
        "why": [Phrase("why @", "warum @")],
        "what": [Phrase("what @", "was @")],
        "whom": [Phrase("whom @", "wen @")],
        "where": [Phrase("where @", "wo @")],
        "that": [Phrase(f"{say.english()} that @", f"{say.german()}, dass @") for say in says],
        "because": [Phrase(f"{main.english()} because @", f"{main.german()}, weil @") for main in mains],
        "whenever": [Phrase(f"{main.english()} when @", f"{main.german()}, wenn @") for main in mains],
        "if": [Phrase(f"if @, {main.english()}", f"wenn @, {main.german('question')}") for main in mains],
    }
