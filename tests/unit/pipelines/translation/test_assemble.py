"""Assembly: one translation per line, with what the reader should know. No model is needed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from transformer.decoding import Hypothesis, Search
from transformer.pipelines.translation.assemble import Assembler
from transformer.pipelines.translation.checks import Checker
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.pipelines.translation.search import SearchedSegment
from transformer.pipelines.translation.segment import Segment, SegmentedLine
from transformer.pipelines.translation.terminology import Terminology
from transformer.text.case import CaseRun, Truecased
from transformer.text.line_splitting import SplitLine
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

TOKENIZERS = TokenizerPair.train(lambda: ["one two"] * 9, lambda: ["1 2 3"] * 9, TokenizerConfig(vocab_size=300))


def assembler(aligner: object = None, **options: Any) -> Assembler:
    config = TranslatorConfig(max_source_tokens=8, max_target_tokens=96, **options)
    return Assembler(config, TOKENIZERS, aligner=cast(Any, aligner))


def checked(line: SegmentedLine, searched: Sequence[SearchedSegment], **options: Any) -> Translation:
    """Returns the translation of a line with the flags of the checks."""
    made = assembler(**options)
    checker = Checker(made.config, TOKENIZERS)
    (result,) = checker.check([line], [searched], made.assemble([line], [searched]))
    return result.translation


def segment(text: str, prefix: tuple[int, ...] = ()) -> Segment:
    return Segment([*TOKENIZERS.source.encode(text), 2], prefix, limit=20, number=0)


def line_of(text: str, *pieces: str, **split: Any) -> SegmentedLine:
    return SegmentedLine(text, TagFreeLine(text), SplitLine([*pieces], **split), tuple(map(segment, pieces)))


def searched(source: Segment, *texts: str, finished: bool = True, retried: bool = False) -> SearchedSegment:
    hypotheses = [
        Hypothesis(TOKENIZERS.target.encode(text), -1.5 - rank, finished=finished, ranking_score=-1.5 - rank)
        for rank, text in enumerate(texts)
    ]
    return SearchedSegment(source, hypotheses, retried)


def test_segments_are_joined_rank_by_rank() -> None:
    """Catches a best segment beside the second best of another, a lost segment, and scores of a part of the line."""
    line = line_of("one. two", "one.", "two", words=[0, 1])
    first, second = line.segments
    translation = checked(line, [searched(first, "1 2", "2 2"), searched(second, "3", "1", "2")])
    assert [alternative.text for alternative in translation.alternatives] == ["1 2 3", "2 2 1"]
    assert [alternative.score for alternative in translation.alternatives] == [-3.0, -5.0]
    assert translation.sources == (tuple(first.tokens), tuple(second.tokens))
    assert translation.words == ([0, 1], [0, 1, 2])
    assert translation.flags == ()


def test_a_line_without_segments_stays_empty() -> None:
    """Catches an empty line that is lost."""
    translation = checked(line_of(""), [])
    assert translation.alternatives == (EMPTY_ALTERNATIVE,)
    assert (translation.text, translation.flags, translation.sources, translation.words) == ("", (), (), None)


def test_flags_say_what_happened_to_any_segment() -> None:
    """Catches a flag of the first segment alone, and one of another kind in its place."""
    line = line_of("one two", "one", "two", is_clean=False)
    first, second = line.segments
    ends = searched(first, "1")

    def flags(other: SearchedSegment, **options: Any) -> tuple[str, ...]:
        cut, *others = checked(line, [ends, other], **options).flags
        assert cut == "longer than 8 tokens without a sentence end; cut within a sentence"
        return tuple(others)

    assert flags(searched(second, "2")) == ()
    assert flags(searched(second, "2", finished=False)) == ("the translation did not end and was cut at the limit",)
    assert flags(searched(second, "1 2 3 " * 9)) == ("the translation is far longer than its source",)
    (retried,) = flags(searched(second, "2", retried=True))
    assert retried == "the first translation looped or did not end; searched again without repeated 3-grams"
    assert flags(searched(second, "2"), terminology=Terminology(banned=["2"])) == ("the banned phrase '2' occurs",)


def test_a_repetition_is_flagged_unless_the_source_repeats_too() -> None:
    """Catches a loop that no flag names, and a chant that is taken for one."""
    for text, flags in (("one two " * 3, ("the translation repeats itself",)), ("one " * 12, ())):
        line = line_of(text, text)
        assert checked(line, [searched(line.segments[0], "1 " * 9)]).flags == flags


@pytest.mark.parametrize(
    ("prefix", "flag"),
    [
        ((5,) * 19, None),
        ((5,) * 20, "the requested prefix is longer than the model's limit; it was cut"),
        ((5, 3, 6), "the requested prefix has characters outside the vocabulary; it was cut before them"),
    ],
)
def test_a_prefix_that_was_cut_is_flagged(prefix: tuple[int, ...], flag: str | None) -> None:
    """Catches a beginning that was asked for and is silently not there."""
    source = segment("one two one two", prefix)
    line = SegmentedLine("one", TagFreeLine("one"), SplitLine(["one"]), (source,))
    translation = checked(line, [searched(source, "1 2 3 1 2")], search=Search(min_tokens=9))
    assert translation.flags == (() if flag is None else (flag,))


class SameOrder:
    """Aligns each word with the one at its place."""

    def knowing(self, _: object, __: int) -> "SameOrder":
        """Returns itself, as it needs no attention."""
        return self

    def links(self, segments: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[tuple[int, int]], Any]:
        """Returns the pairs of places, and the numbers of words."""
        n_words = sum(len(TOKENIZERS.target.decode(target).split()) for _, target in segments)
        return [(word, word) for word in range(n_words)], (n_words, n_words)


def in_capitals(line: SegmentedLine, *runs: CaseRun) -> SegmentedLine:
    return replace(line, truecased=Truecased(" ".join(line.split.pieces), runs))


def test_translations_get_the_case_of_their_lines() -> None:
    """Catches a line whose case is lost, also in an alternative or a second segment."""
    line = in_capitals(line_of("ONE. TWO", "One.", "two"), CaseRun("capitals", 0, 2, is_whole=True))
    first, second = line.segments
    (translation,) = assembler().assemble([line], [[searched(first, "ist eins", "b"), searched(second, "straße", "d")]])
    assert [alternative.text for alternative in translation.alternatives] == ["IST EINS STRASSE", "B D"]
    assert translation.alternatives[0].tokens[1] == tuple(TOKENIZERS.target.encode("straße"))


def test_words_of_a_run_get_its_case_by_their_alignment() -> None:
    """Catches capitals on all words, and on those of the first segment for a run in the second."""
    pieces = "one two", "one two"
    line = in_capitals(line_of("one two one TWO", *pieces, words=[0, 1, 2, 3]), CaseRun("capitals", 3, 4))
    parts = [searched(segment, text) for segment, text in zip(line.segments, ("a b", "c d"), strict=True)]
    (translation,) = assembler(SameOrder()).assemble([line], [parts])
    assert translation.text == "a b c D"
    assert translation.words == ([0, 1, 2, 3], [0, 1, 2, 3])
