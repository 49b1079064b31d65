"""Segmentation: what is searched for each line. No model is needed."""

from typing import Any

import pytest

from transformer.decoding import Search
from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.segmentation import EXTRA_TOKENS, SEEDS_PER_LINE, Segmenter
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.unseen import UnseenCharacters
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

TOKENIZERS = TokenizerPair.train(
    lambda: ["one two three four five."] * 9, lambda: ["1 2 3"] * 9, TokenizerConfig(vocab_size=300)
)
EOS = 2


def segmenter(**options: Any) -> Segmenter:
    config = TranslatorConfig(**{"max_source_tokens": 8, "max_target_tokens": 96, **options})
    constraint_tokenizer = ConstraintTokenizer(TOKENIZERS.target, config.terminology)
    seen = None if config.source_text is None else config.source_text.characters
    unseen = UnseenCharacters(TOKENIZERS.source, seen)
    return Segmenter(config, TOKENIZERS, [TOKENIZERS.source], constraint_tokenizer, unseen)


def test_every_line_has_its_own_segments_in_order() -> None:
    """Catches a segment that goes to a neighbour, a segment of an empty line, and words that are lost in a split."""
    lines = ["one two", "", "one two three. four five. " * 3, "  ", "three"]
    segmented = segmenter().segment(lines)
    assert [line.outer[0] + line.text + line.outer[1] for line in segmented] == lines
    assert [len(line.segments) for line in segmented] == [1, 0, len(segmented[2].split.pieces), 0, 1]
    assert len(segmented[2].segments) > 1
    for line in segmented:
        spelled = " ".join(TOKENIZERS.source.decode(segment.tokens) for segment in line.segments)
        assert spelled.split() == line.text.split()
        assert all(segment.tokens[-1] == EOS and len(segment.tokens) <= 8 for segment in line.segments)


def test_random_streams_are_numbered_by_line() -> None:
    """Catches a number that depends on how many segments precede, or that two segments share."""
    lines = ["one two three. four five. " * 3, "one"]
    long, short = segmenter().segment(lines, first_line=7)
    assert [segment.number for segment in long.segments] == [7 * SEEDS_PER_LINE + i for i in range(len(long.segments))]
    assert [segment.number for segment in short.segments] == [8 * SEEDS_PER_LINE]


def test_a_prefix_begins_the_first_segment_alone() -> None:
    """Catches a prefix that every part of a line repeats, one of another line, and one that is not in the limit."""
    lines = ["one two three. four five. " * 3, "one"]
    long, short = segmenter().segment(lines, ["1 2", ""])
    assert [segment.prefix for segment in long.segments[1:]] == [()] * (len(long.segments) - 1)
    assert long.segments[0].prefix == tuple(TOKENIZERS.target.encode("1 2"))
    assert short.segments[0].prefix == ()
    first = long.segments[0]
    assert first.limit == len(first.tokens) + len(first.prefix) + EXTRA_TOKENS
    with pytest.raises(DataError, match="2 lines, but 1 prefixes; give one prefix per line"):
        segmenter().segment(lines, ["1"])


@pytest.mark.parametrize(
    ("search", "limit"),
    [
        (Search(), 2 + EXTRA_TOKENS),
        (Search(max_tokens=7), 8),  # EOS counts
        (Search(min_tokens=30), 31 + EXTRA_TOKENS),
        (Search(min_tokens=95), 96),  # all positions
        (Search(max_tokens=500), 96),
    ],
)
def test_limits(search: Search, limit: int) -> None:
    """Catches a limit that ignores the source, the options or the positions."""
    (line,) = segmenter(search=search).segment(["one"])
    assert len(line.segments[0].tokens) == 2
    assert line.segments[0].limit == limit


def test_the_task_leads_every_segment() -> None:
    """Catches parts that lack the task, a task that is translated for an empty line, and terms found in the task."""
    terminology = Terminology(glossary=[("three", "3"), ("one", "1")])
    made = segmenter(task="three: ", terminology=terminology, max_source_tokens=10)
    long, empty, short = made.segment(["one two. four five. " * 3, "", "one"])
    lead = TOKENIZERS.source.encode("three:")
    assert len(long.segments) > 1
    assert all(segment.tokens[: len(lead)] == lead for segment in (*long.segments, *short.segments))
    assert empty.segments == ()
    assert len(short.segments[0].required) == 1
    with pytest.raises(ConfigError, match=r"leaves -?[0-9]+ of 9 tokens for the text; give a shorter one"):
        segmenter(task="one two three four five " * 2, max_source_tokens=10).segment(["one two three four five"])


def test_tags_are_taken_out() -> None:
    """Catches a tag that the model sees, and a line that is split because of its tags."""
    made = segmenter(terminology=Terminology(protected=["tags"]))
    tagged, plain = made.segment(['<b id="a long attribute">one</b> two', "one two"])
    assert [segment.tokens for segment in tagged.segments] == [segment.tokens for segment in plain.segments]
    assert tagged.tag_free.elements
    assert not plain.tag_free.elements
