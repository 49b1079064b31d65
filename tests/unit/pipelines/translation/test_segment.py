"""Segmentation: what is searched for each line. No model is needed."""

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from substitution import substitute
from transformer.data.source_text import SourceText
from transformer.decoding import Search
from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.segment import (
    EXTRA_TOKENS,
    MAX_CHARACTERS,
    MAX_UNBROKEN,
    SEEDS_PER_LINE,
    Segmenter,
)
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.truecasing import make_truecaser
from transformer.pipelines.translation.unseen import UnseenCharacters
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

TOKENIZERS = TokenizerPair.train(
    lambda: ["one two three four five."] * 9, lambda: ["1 2 3"] * 9, TokenizerConfig(vocab_size=300)
)
TRUECASER = make_truecaser(TOKENIZERS.source, "en")
EOS = 2


def segmenter(**options: Any) -> Segmenter:
    config = TranslatorConfig(**{"max_source_tokens": 8, "max_target_tokens": 96, **options})
    seen = None if config.source_text is None else config.source_text.characters
    unseen = UnseenCharacters(TOKENIZERS.source, seen)
    return Segmenter(config, TOKENIZERS, [TOKENIZERS.source], unseen, TRUECASER)


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


@pytest.mark.parametrize(
    ("prefix", "parts"),
    [
        ("Eins. Zw", ["Eins.", "Zw", ""]),
        ("Eins. Zwei. Drei. Vier", ["Eins.", "Zwei.", "Drei. Vier"]),
        ("Eins.", ["Eins.", "", ""]),
        ("Ei", ["Ei", "", ""]),
        ("", ["", "", ""]),
    ],
)
def test_the_sentences_of_a_prefix_belong_to_those_of_the_line(prefix: str, parts: list[str]) -> None:
    """Catches a first sentence whose translation repeats the second one, because its prefix has both."""
    made = segmenter(max_source_tokens=40, source_text=source_text({1: 99}))
    (line,) = made.segment(["One. Two. Three."], [prefix])
    expected = [tuple(TOKENIZERS.target.encode(part)) for part in parts]
    assert [segment.prefix for segment in line.segments] == expected
    assert [segment.prefix for segment in made.by_sentence(line).segments] == expected
    (whole,) = segmenter(max_source_tokens=40).segment(["One. Two. Three."], [prefix])
    assert [segment.prefix for segment in whole.segments] == [tuple(TOKENIZERS.target.encode(prefix))]


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
    with pytest.raises(DataError, match="2 lines, but prefixes for 1; give one prefix per line"):
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
    """Catches parts that lack the task, and a task that is translated for an empty line."""
    made = segmenter(task="three: ", max_source_tokens=10)
    long, empty, short = made.segment(["one two. four five. " * 3, "", "one"])
    lead = TOKENIZERS.source.encode("three:")
    assert len(long.segments) > 1
    assert all(segment.tokens[: len(lead)] == lead for segment in (*long.segments, *short.segments))
    assert empty.segments == ()
    with pytest.raises(ConfigError, match=r"leaves -?[0-9]+ of 9 tokens for the text; give a shorter one"):
        segmenter(task="one two three four five " * 2, max_source_tokens=10).segment(["one two three four five"])


def test_tags_are_taken_out() -> None:
    """Catches a tag that the model sees, and a line that is split because of its tags."""
    made = segmenter(terminology=Terminology(protected=["tags"]))
    tagged, plain = made.segment(['<b id="a long attribute">one</b> two', "one two"])
    assert [segment.tokens for segment in tagged.segments] == [segment.tokens for segment in plain.segments]
    assert tagged.tag_free.elements
    assert not plain.tag_free.elements


def source_text(sentences: dict[int, int], without_letters: int = 0, characters: str | None = None) -> SourceText:
    return SourceText(Counter(sentences), without_letters, None if characters is None else set(characters))


LEARNED = {1: 900, 2: 100}


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({}, ["One. Two."]),  # nothing is known of the training text
        ({"source_text": source_text({1: 99})}, ["One.", "Two."]),
        ({"source_text": source_text(LEARNED)}, ["One. Two."]),
        ({"split": "sentence"}, ["One.", "Two."]),
        ({"source_text": source_text({1: 99}), "split": "none"}, ["One. Two."]),
        ({"source_text": source_text({1: 99}), "task": "t: "}, ["t: One. Two."]),  # a task is for the whole
    ],
)
def test_lines_are_split_as_the_model_was_trained(options: dict[str, Any], pieces: list[str]) -> None:
    """Catches sentences that are lost because a model gets more of them than in training, and options ignored."""
    (line,) = segmenter(max_source_tokens=40, **options).segment(["One. Two."])
    assert line.split.pieces == pieces


IN_CAPITALS = SourceText(Counter({1: 10}), cases=Counter(capitals=9))


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"source_text": source_text({1: 99})}, "One two HTTP://A.B three"),
        ({"source_text": source_text({1: 99}), "case": "keep"}, "ONE TWO HTTP://A.B THREE"),
        ({"source_text": IN_CAPITALS}, "ONE TWO HTTP://A.B THREE"),
        ({"source_text": source_text({1: 99}), "task": "t: "}, "t: ONE TWO HTTP://A.B THREE"),  # an answer, perhaps
        ({}, "ONE TWO HTTP://A.B THREE"),  # nothing is known of the training text
        (
            {"source_text": source_text({1: 99}), "terminology": Terminology(glossary=[("TWO", "2")])},
            "One TWO HTTP://A.B three",
        ),
    ],
)
def test_capitals_are_seen_in_ordinary_case_where_training_had_few(options: dict[str, Any], seen: str) -> None:
    """Catches capitals that the model does not know, and changed ones that it knows or that are terms or addresses."""
    made = segmenter(max_source_tokens=90, **options)
    (line,) = made.segment(["ONE TWO HTTP://A.B THREE"])
    assert line.split.pieces == [seen]
    assert made.by_sentence(line).split.pieces == [seen]
    (begun,) = made.segment(["ONE TWO HTTP://A.B THREE"], ["1"])  # a beginning has its own case
    assert begun.split.pieces == [made.config.task + "ONE TWO HTTP://A.B THREE"]


def test_a_line_with_too_many_sentences_gets_pieces_of_typical_length() -> None:
    """Catches pieces packed as full as a model can be, where hardly any line was so in training."""
    line = "One. Two. Three. Four."
    (single,) = segmenter(max_source_tokens=60, source_text=source_text(LEARNED)).segment([line])
    assert single.split.pieces == ["One.", "Two.", "Three.", "Four."]
    (paragraphs,) = segmenter(max_source_tokens=60, source_text=source_text({2: 90, 1: 9})).segment([line])
    assert paragraphs.split.pieces == ["One. Two.", "Three. Four."]
    assert [piece.number for piece in single.segments] == [0, 1, 2, 3]
    (again,) = [segmenter(max_source_tokens=60).by_sentence(single)]
    assert again.split.pieces == single.split.pieces


ADDRESSES = [
    "https://en.wikipedia.org/wiki/Foo_(bar)", "https://a.b/c.", "<https://a.b/c>", "ftp://x.y", "mailto:me@x.org",
    "example.com", "(example.de/a?b=c#d)", "https://a.b https://c.d/e", "1. http://a.b, www.c.d; <me@x.org>",
]  # fmt: skip


@pytest.mark.parametrize("text", ["see example.com", "https://a.b is down", "e.g. a", "Yes.No", "e.g.", "p.m.", "U.S."])
def test_text_beside_addresses_is_translated(text: str) -> None:
    """Catches sentences and abbreviations that are taken for addresses."""
    assert not segmenter(max_source_tokens=40).segment([text])[0].is_copied


WITHIN_PROCESSOR_TIME = """
import resource, sys
from transformer.text.spans import without_addresses

for part in sys.argv[1:]:
    print(part, flush=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 6, hard))
    without_addresses("http://" + part * 250_000 + " x")
    without_addresses(part * 250_000 + "!")
"""


def test_addresses_are_found_in_linear_time() -> None:
    """Catches a pattern that tries all ways to read brackets, dots or labels.

    The system ends the process after five seconds of processor time for one part, over ten times what a linear pattern
    takes. A quadratic one takes 17 seconds at the fastest that was seen, and ten minutes at 10 ns a step.
    """
    parts = ["(a", "()", "((", "a.", ".", "a@", "[", "http://("]
    command = [sys.executable, "-c", WITHIN_PROCESSOR_TIME, *parts]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.stdout.split(), result.returncode) == (parts, 0), result.stderr


@pytest.mark.parametrize("text", ["-", "...", "7", "1.", "😀", "https://example.org/x", "a@b.org", "3.5 %", *ADDRESSES])
def test_a_line_without_anything_to_translate_is_copied(text: str) -> None:
    """Catches sentences that a model invents for signs and addresses, and a copy that was not wanted."""
    (line,) = segmenter().segment([f" {text}\t"])
    assert (line.is_copied, line.segments, line.outer, line.text) == (True, (), (" ", "\t"), text)
    for options in ({"copy": False}, {"task": "t: "}, {"terminology": Terminology(glossary=[(text, "x")])}):
        (line,) = segmenter(max_source_tokens=40, **options).segment([text])
        assert not line.is_copied
    assert not segmenter(max_source_tokens=40).segment([text], prefixes=["1"])[0].is_copied


def test_lines_without_letters_are_translated_where_they_were_learned() -> None:
    """Catches a model of numbers that copies all of its sources."""
    (line,) = segmenter(source_text=source_text({1: 99}, without_letters=50)).segment(["7"])
    assert not line.is_copied
    assert not segmenter().segment(["see https://example.org/x"])[0].is_copied


@pytest.mark.parametrize("prefixes", [None, ["1"]])
def test_a_line_beyond_all_limits_is_copied(prefixes: list[str] | None) -> None:
    """Catches a line whose tokens fill the memory."""
    (line,) = segmenter(copy=False).segment(["a " * (MAX_CHARACTERS // 2 + 1)], prefixes)
    assert (line.is_copied, line.segments, line.too_long) == (True, (), "longer than 1,000,000 characters")


def test_a_word_that_is_no_text_is_copied() -> None:
    """Catches minutes for the bytes of an image; long text of a script without spaces is translated."""
    word, texts = "ab1" * (MAX_UNBROKEN // 3), ("ab " * MAX_UNBROKEN, "你好。" * MAX_UNBROKEN, "ab1" * 2000)
    (line,) = segmenter(copy=False).segment([f"one {word} two"])
    assert not line.is_copied
    (line,) = segmenter(copy=False).segment([f"one {word}ab two"])
    assert (line.is_copied, line.segments, line.too_long) == (True, (), "a word has more than 16,384 characters")
    for line in segmenter(copy=False, max_source_tokens=40).segment(texts):
        assert not line.is_copied
        assert line.segments


def test_texts_are_encoded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a block that is left out or put elsewhere; each takes 200 bytes a character while it is encoded."""
    lines = ["one two three. four five. " * n for n in (40, 1, 1, 7)] + ["", "three"]
    expected = segmenter().segment(lines)
    for size in (1, 30, 100):
        substitute(monkeypatch, "segment.BLOCK_CHARACTERS", size)
        assert segmenter().segment(lines) == expected


def test_unseen_characters_are_named() -> None:
    """Catches a character that is reported although it was seen, is white space, or is normalized away."""
    made = segmenter(max_source_tokens=40, source_text=source_text({1: 9}, characters="one two"))
    lines = made.segment(["one ¶ two\u3000ж", "two one", "¶¶", "\ufeffone"])
    assert [line.unseen for line in lines] == [("¶", "ж"), (), (), ()]  # the third line is copied


@pytest.mark.parametrize(
    ("options", "text", "unseen"),
    [
        ({"normalize": True}, "cafe\u0301", ("é",)),
        ({"normalize": True}, "café", ("é",)),
        ({"normalize": True}, "ca\u00adfe\u200b", ()),
        ({"lowercase": True}, "CAFE Ж", ("ж",)),
        ({}, "cafe\u0301", ("\u0301",)),
    ],
)
def test_unseen_characters_are_those_that_the_model_sees(
    options: dict[str, Any], text: str, unseen: tuple[str, ...]
) -> None:
    """Catches a composed or lower-case character that is looked for as it was written."""
    lines = ["cafe"] * 9
    pair = TokenizerPair.train(lambda: lines, lambda: lines, TokenizerConfig(vocab_size=300, **options))
    assert UnseenCharacters(pair.source, set("cafe")).find(text) == unseen
