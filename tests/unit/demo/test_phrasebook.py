"""The demonstration corpus: its sizes, its held-out design read off the text alone, and the baseline."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from phrasebook.generate import build_phrasebook, reserved_pairs
from phrasebook.grammar import word_pairs
from phrasebook.phrases import numbers
from phrasebook.words import ADJECTIVES, NOUNS
from transformer.demo import Phrasebook, load_phrasebook, nearest_neighbour
from transformer.errors import ConfigError


@cache
def corpus() -> Phrasebook:
    return load_phrasebook()


def held_out() -> tuple[tuple[str, str], ...]:
    return (*corpus().validation, *corpus().test)


def tokens(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text)


def test_sizes_and_disjointness() -> None:
    """Catches a split of the wrong size, and a sentence in two splits or twice in one."""
    book = corpus()
    assert (len(book.train), len(book.validation), len(book.test)) == (40_000, 500, 500)
    english = [source for source, _ in (*book.train, *held_out())]
    assert len(set(english)) == len(english)


@pytest.mark.slow
def test_the_shipped_file_is_what_the_generator_makes() -> None:
    """Catches a grammar that was changed without writing the file anew, and a reader that loses or alters a pair."""
    assert corpus() == build_phrasebook()


def test_sentences_are_well_formed() -> None:
    """Catches unfilled places, doubled spaces, a lost capital or mark, a missing comma, and sentences out of range."""
    for english, german in (*corpus().train, *held_out()):
        assert 4 <= len(english.split()) <= 14, english
        for text in (english, german):
            assert re.fullmatch(r"[A-ZÄÖÜ][\w,' -]*[.?]", text), text
            assert "  " not in text
        assert english[-1] == german[-1]
        conjunctions = re.findall(r"(?:^|\S+ )(?:dass|weil|wenn)\b", german)
        assert all(conjunction.split()[0].endswith(",") for conjunction in conjunctions), german


def plural(noun: str) -> str:
    irregular = {"man": "men", "woman": "women", "child": "children", "knife": "knives"}
    if noun in irregular:
        return irregular[noun]
    if noun.endswith(("s", "x", "o", "sh", "ch")):
        return noun + "es"
    return re.sub(r"(?<![aeiou])y$", "ie", noun) + "s"


NOUN_OF = {form: noun for noun in NOUNS for form in (noun, plural(noun))}
PAIR_VERBS = {first for first, _ in word_pairs() if first not in ADJECTIVES}
VERB_OF = {
    " ".join([form, *verb.split(" ")[1:]]): verb
    for verb in PAIR_VERBS
    for form in (
        verb.split(" ")[0],
        re.sub(r"(?<![aeiou])y$", "ie", verb.split(" ")[0]) + "s",
        verb.split(" ")[0] + "es",
    )
}
PREPOSITIONS = {"for", "from", "with", "without", "on", "in", "at", "after", "before", "to"}


def clause_pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Read off the text which adjectives stand with which nouns, and which nouns follow which verbs as objects."""
    for start, word in enumerate(words):
        for following in words[start + 1 : start + 2]:
            if word in ADJECTIVES and following in NOUN_OF:
                yield word, NOUN_OF[following]
            if word in NOUN_OF and following in ADJECTIVES and words[-1] == following:  # "is the car new?"
                yield following, NOUN_OF[word]
        copula = [other for other in words[start + 1 : start + 4] if other in ADJECTIVES]
        if word in NOUN_OF and copula and words[start + 1] in ("is", "are"):
            yield copula[0], NOUN_OF[word]
        for length in (2, 1):
            verb = VERB_OF.get(" ".join(words[start : start + length]))
            if verb:
                for other in words[start + length :]:
                    if other in PREPOSITIONS:
                        break
                    if other in NOUN_OF:
                        yield verb, NOUN_OF[other]
                break


def text_pairs(english: str) -> set[tuple[str, str]]:
    clauses = re.split(r"\b(?:because|that|when|if)\b|,", english[:-1].lower())
    return {pair for clause in clauses for pair in clause_pairs(tokens(clause))}


def test_reserved_pairs_are_only_in_held_out_sentences() -> None:
    """Catches a reserved pair that reaches training in any pattern, and held-out sentences without one."""
    reserved = reserved_pairs()
    in_training = {pair for english, _ in corpus().train for pair in text_pairs(english)}
    assert len(reserved) == len(word_pairs()) // 10
    assert not reserved & in_training
    assert all(reserved & text_pairs(english) for english, _ in held_out())
    # The two checks above would pass on an extraction that finds nothing; it finds what must be found.
    assert len(in_training & set(word_pairs())) > 0.98 * (len(word_pairs()) - len(reserved))
    assert len(reserved & {pair for english, _ in held_out() for pair in text_pairs(english)}) > 0.9 * len(reserved)


def test_held_out_words_occur_in_training() -> None:
    """Catches held-out sentences that ask for a word, or a form of a word, never seen."""
    for side in (0, 1):
        seen = {word for pair in corpus().train for word in tokens(pair[side])}
        assert {word for pair in held_out() for word in tokens(pair[side])} <= seen


def test_words_are_frequent_in_training() -> None:
    """Catches shares of the sentence families that starve a noun, an adjective or a number of examples."""
    counts = Counter(word for english, _ in corpus().train for word in set(tokens(english.lower())))
    nouns = {noun: counts[noun] + counts[plural(noun)] for noun in NOUNS}
    others = {word: counts[word] for word in (*ADJECTIVES, *(number.english for number in numbers()))}
    assert {word: count for word, count in (nouns | others).items() if count < 90} == {}


CORPUS_DIGEST = """
import hashlib
from phrasebook.generate import build_phrasebook
print(hashlib.sha256(repr(build_phrasebook(3000, 50, 50, seed=7)).encode()).hexdigest())
"""


@pytest.mark.slow
def test_same_seed_same_corpus_in_every_process() -> None:
    """Catches a dependence on the order of sets or on hash(), which differ between processes."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CORPUS_DIGEST],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for hash_seed in ("0", "1")
    ]
    digests = {run.communicate()[0].decode().strip() for run in runs}
    here = hashlib.sha256(repr(build_phrasebook(3000, 50, 50, seed=7)).encode()).hexdigest()
    assert digests == {here}


@pytest.mark.slow
def test_seed_changes_pairs_and_sentences() -> None:
    """Catches a seed that is ignored in the reservation or in the drawing."""
    assert reserved_pairs(1) != reserved_pairs(2)
    assert build_phrasebook(2000, 0, 0, seed=1).train != build_phrasebook(2000, 0, 0, seed=2).train


def test_copying_the_nearest_sentence_fails_on_held_out_sentences() -> None:
    """Catches held-out sentences that a look-up could answer: the corpus would then not show learning."""
    answers = nearest_neighbour(corpus().train, [english for english, _ in held_out()])
    exact = sum(answer == german for answer, (_, german) in zip(answers, held_out(), strict=True))
    assert exact < 0.3 * len(answers)


def test_nearest_neighbour_finds_the_nearest() -> None:
    """Catches a baseline that is weak because it is broken: wrong sentence, long sentences favoured, last of a tie."""
    train = [
        ("The old man sees a dog and a cat on Monday.", "lang"),
        ("The man sees a dog.", "erste"),
        ("The man sees a cat.", "zweite"),
        ("A dog sees a dog.", "dritte"),
    ]
    sources = ["The man sees a dog.", "The man sees a bird.", "A dog sees a horse.", "the man SEES a cat."]
    assert nearest_neighbour(train, sources) == ["erste", "erste", "dritte", "zweite"]
    assert nearest_neighbour([], []) == []


def test_nearest_neighbour_answers_seen_sentences() -> None:
    """Catches an index that loses sentences: every training sentence is its own nearest neighbour."""
    seen = corpus().train[:50]
    assert nearest_neighbour(corpus().train, [english for english, _ in seen]) == [german for _, german in seen]


def test_too_many_sentences() -> None:
    """Catches an endless search for sentences that do not exist, and a message that does not say what to do."""
    with pytest.raises(
        ConfigError, match=r"^n_train=\d+ exceeds the \d+ sentences the grammar can make; choose fewer$"
    ):
        build_phrasebook(n_train=10**18)
    with pytest.raises(ConfigError, match=r"^n_test=\d+ exceeds the \d+ .* the grammar can make; choose fewer$"):
        build_phrasebook(n_train=10, n_test=10**18)


def test_too_few_training_sentences() -> None:
    """Catches held-out words that training lacks when the training set is small."""
    with pytest.raises(
        ConfigError, match=r"^n_train=5 has the words of only \d+ held-out sentences of 1000; choose more$"
    ):
        build_phrasebook(n_train=5)


@pytest.mark.parametrize("name", ["n_train", "n_validation", "n_test"])
def test_negative_numbers(name: str) -> None:
    """Catches a negative number that would silently cut sentences off the end of another split."""
    with pytest.raises(ConfigError, match=f"^{name}=-1 is negative; choose 0 or more$"):
        build_phrasebook(**{name: -1})


def test_baseline_without_training_sentences() -> None:
    """Catches an index error instead of a message."""
    with pytest.raises(ConfigError, match="train is empty"):
        nearest_neighbour([], ["The man sleeps today."])
