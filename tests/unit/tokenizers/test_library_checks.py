"""Tokenizers of published models from an untrusted source."""

import json
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers

from transformer.errors import DataError
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.library_checks import is_explosive
from transformer.tokenizers.special_tokens import SpecialTokenIds

EXPLOSIVE = ["(a+)+", "(a|aa)*$", "(a*)*b", "((ab)+c)*", "(?:x{1,})+", "((a+)b?)+", r"([(]a+)*"]
PUBLISHED = [
    " {2,}",
    r"[\s\S]",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]+",
    r"(?=(\d{3})+(?!\d))",
]
SPECIAL = SpecialTokenIds(None, None, None, 0)


@pytest.mark.parametrize("pattern", EXPLOSIVE)
def test_patterns_that_take_for_ever(pattern: str) -> None:
    """Catches repetitions within repetitions."""
    assert is_explosive(pattern)


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_patterns_of_published_tokenizers(pattern: str) -> None:
    """Catches a refusal of GPT-2, GPT-4, Llama 3 or DeepSeek for a parenthesis or a bar in a class of characters."""
    assert not is_explosive(pattern)


def content(**parts: Any) -> str:
    library = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    library.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("x", "a")])
    return json.dumps(json.loads(library.to_str()) | parts)


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": steps}


HOSTILE = {
    "doubles 40 times": ({"normalizer": sequence(*[replace("aa", String="a")] * 40)}, "makes up to 1e\\+12 characters"),
    "hangs": ({"normalizer": replace("b", Regex="(a+)+$")}, r"the pattern '\(a\+\)\+\$', which can take for ever"),
    "many parts": ({"normalizer": sequence(*[{"type": "NFC"}] * 2000)}, "more than 1,000 parts"),
    "long": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}}, "a text of 1,000,000 characters"),
    "negative": ({"decoder": {"type": "Strip", "content": "a", "start": -1, "stop": 0}}, "start=-1"),
    "ids": ({"model": {"type": "WordLevel", "vocab": {"a": 1 << 40}, "unk_token": "a"}}, "has ids that are not in 0"),
    "types": ({"model": {"type": "WordLevel", "vocab": {"a": "b"}, "unk_token": "a"}}, "has ids that are not in 0"),
    "unknown": ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9}}, "unk_id=9 is not an id"),
    "deep": ({"decoder": json.loads("[" * 500 + "]" * 500)}, "not a tokenizer.json"),
    "no model": ({"model": None}, "it has no model"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_parts_are_refused(name: str) -> None:
    """Catches parts with which the library hangs, takes all memory or aborts."""
    parts, message = HOSTILE[name]
    with pytest.raises(DataError, match=message):
        HuggingFaceTokenizer(content(**parts), SPECIAL)


def test_padding_and_truncation_of_a_file_do_not_count() -> None:
    """Catches a text padded to all memory, or cut."""
    padding = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "a"}  # fmt: skip
    truncation = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    tokenizer = HuggingFaceTokenizer(content(padding=padding, truncation=truncation), SPECIAL)
    assert tokenizer.encode("x") == [0]


def test_a_panic_of_the_library_is_an_error() -> None:
    """Catches a panic, which is no `Exception`, in the middle of a text: this pattern takes cubic time."""
    slow = content(normalizer=replace("b", Regex=r"a*a*a*a*a*a*a*a*$"))
    tokenizer = HuggingFaceTokenizer(slow, SPECIAL)
    with pytest.raises(DataError, match="cannot split it"):
        tokenizer.encode("a" * 400 + "!")
