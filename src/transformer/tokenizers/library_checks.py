"""Checks of a tokenizer.json from an untrusted source, before the tokenizers library reads it.

A few of its parts can make the library hang, take all memory or abort the process in the middle of a text.
"""

import json
import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

import tokenizers

from transformer.config import JsonObject, describe_error
from transformer.errors import DataError

MAX_PARTS: Final = 1000
"""Maximum number of normalizers, pre-tokenizers, decoders and the like."""
MAX_GROWTH: Final = 1 << 16
"""Maximum number of characters that normalizers and decoders may make of one."""
MAX_TEXT: Final = 1 << 12
"""Maximum length of a pattern, or of a text that replaces another one."""
MAX_ID: Final = 1 << 24
"""Number of ids that a vocabulary may use."""
STEPS: Final = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
ESCAPED: Final = re.compile(r"\\.|\[\^?(?:\\.|[^\\])(?:\\.|[^\]\\])*\]", re.DOTALL)
UNBOUNDED: Final = re.compile(r"[*+]|\{\d*,\}")


@contextmanager
def library_errors(message: str) -> Generator[None]:
    """Reports errors of the tokenizers library, which raises plain `Exception`, and panics that are none.

    Raises:
        DataError: The library failed.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(message) from error
        raise


def read_library_tokenizer(content: str) -> tokenizers.Tokenizer:
    """Reads a tokenizer.json.

    Raises:
        DataError: It is not one, or a part could hang or take all memory.
    """
    check_tokenizer_json(content)
    with library_errors("not a tokenizer.json that the tokenizers library reads; copy it again"):
        return tokenizers.Tokenizer.from_str(content)


def check_tokenizer_json(content: str) -> None:
    """Checks the parts of a tokenizer.json whose cost is not bounded by the length of a text.

    Raises:
        DataError: It is not JSON, or a part could hang or take all memory.
    """
    try:
        fields = json.loads(content)
        if not isinstance(fields, dict) or not isinstance(fields.get("model"), dict):
            raise DataError("it has no model")
        for name in STEPS:
            _check_steps(name, fields.get(name))
        _check_vocabulary(fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError, DataError) as error:
        raise DataError(f"not a tokenizer.json: {describe_error(error)}; copy it again") from error


def _check_steps(name: str, part: object) -> None:
    """Checks the size of a pipeline of steps, how much they lengthen a text, and their patterns."""
    nodes = list(_nodes(part))
    if len(nodes) > MAX_PARTS:
        raise DataError(f"its {name} has more than {MAX_PARTS:,} parts")
    growth = 1.0
    for node in nodes:
        pattern, replacement = node.get("pattern") or {}, node.get("content")
        texts = [*pattern.values()] if isinstance(pattern, dict) else [pattern]
        for text in (*texts, replacement, node.get("prepend")):
            if isinstance(text, str) and len(text) > MAX_TEXT:
                raise DataError(f"its {name} has a text of {len(text):,} characters, more than {MAX_TEXT:,}")
        if isinstance(pattern, dict) and is_explosive(str(pattern.get("Regex", ""))):
            raise DataError(f"its {name} has the pattern {pattern['Regex'][:80]!r}, which can take for ever")
        if isinstance(replacement, str) and isinstance(pattern, dict):
            growth *= max(1.0, len(replacement) / len(pattern.get("String") or "x")) + ("Regex" in pattern)
        for key in ("start", "stop", "length"):
            if isinstance(node.get(key), int) and not 0 <= node[key] <= MAX_TEXT:
                raise DataError(f"its {name} has {key}={node[key]}, which is not in 0 to {MAX_TEXT}")
        if node.get("type") == "FixedLength" and not node.get("length", 1):
            raise DataError(f"its {name} cuts text in pieces of length 0")
    if growth > MAX_GROWTH:
        raise DataError(f"its {name} makes up to {growth:.0e} characters of one")


def _nodes(part: object) -> Iterator[JsonObject]:
    """Yields all objects in a part that have a type."""
    if isinstance(part, dict):
        if "type" in part:
            yield part
        for value in part.values():
            yield from _nodes(value)
    elif isinstance(part, list):
        for value in part:
            yield from _nodes(value)


def _check_vocabulary(fields: JsonObject) -> None:
    """Checks types and sizes of ids, and the numbers of a Unigram model."""
    model = fields["model"]
    vocabulary = model.get("vocab", {})
    if isinstance(vocabulary, dict):
        ids = [*vocabulary.values()]
    else:
        ids = [*range(len(vocabulary))]
        if not all(math.isfinite(score) for _, score in vocabulary):
            raise DataError("its vocabulary has scores that are not finite")
    ids += [token["id"] for token in fields.get("added_tokens") or ()]
    if any(type(token) is not int or not 0 <= token < MAX_ID for token in ids):
        raise DataError(f"its vocabulary has ids that are not in 0 to {MAX_ID - 1:,}")
    unknown = model.get("unk_id")
    if unknown is not None and not 0 <= unknown < len(vocabulary):
        raise DataError(f"unk_id={unknown} is not an id of its vocabulary")


def is_explosive(pattern: str) -> bool:
    """Whether the time to match a pattern can grow exponentially with the length of a text.

    This is the case for a group that is repeated without bound and holds another such repetition, or alternatives:
    `(a+)+`, `(a|aa)*`. Patterns of published tokenizers have none.
    """
    plain = ESCAPED.sub("x", pattern)
    groups = [False]
    position = 0
    while position < len(plain):
        char = plain[position]
        position += 1
        if char == "(":
            groups.append(False)
        elif char == ")" and len(groups) > 1:
            is_repeated, inner = UNBOUNDED.match(plain, position) is not None, groups.pop()
            if is_repeated and inner:
                return True
            groups[-1] = groups[-1] or inner or is_repeated
        elif char == "|" or UNBOUNDED.match(plain, position - 1):
            groups[-1] = True
    return False
