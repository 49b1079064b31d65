"""Subwords that a trained byte-pair tokenizer learns from further text."""

import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from transformer.errors import ConfigError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.byte_pair import BytePairTokenizer

Word = tuple[str, ...]
"""The pieces of a word."""
Merge = tuple[str, str]


def extend_tokenizer(
    tokenizer: Tokenizer, lines: Iterable[str], n_pieces: int, min_frequency: int
) -> BytePairTokenizer:
    """Returns a tokenizer with further pieces that are learned from text; the ids of its pieces stay.

    The merges that the text needs most follow those of the tokenizer, as if the training of byte pairs went on. Text is
    thus first segmented as before. Tags of languages move behind the new pieces.

    Args:
        tokenizer: Byte-pair tokenizer.
        lines: Lines of text.
        n_pieces: Maximum number of new pieces.
        min_frequency: Minimum number of occurrences of a merge in the text.

    Raises:
        ConfigError: The tokenizer is not one of byte pairs.
        DataError: The text is empty.

    Source: Sennrich et al. 2016.
    """
    if not isinstance(tokenizer, BytePairTokenizer):
        raise ConfigError(
            "tokenizer.added_pieces extends byte pairs that the program learned, but this tokenizer is of the kind "
            f"{tokenizer.kind}; leave the key out"
        )
    words = tokenizer.count_words(lines)
    if not words:
        raise DataError("the text of the new language is empty; tokenizer.added_pieces needs text to learn from")
    content = json.loads(tokenizer.to_json())
    model = content["merges"]["model"]
    merges = learn_merges(words, n_pieces, model["vocab"].keys(), min_frequency)
    for left, right in merges:
        model["vocab"].setdefault(left + right, len(model["vocab"]))
    is_paired = not model["merges"] or not isinstance(model["merges"][0], str)
    model["merges"] += [list(merge) if is_paired else " ".join(merge) for merge in merges]
    extended = BytePairTokenizer.from_json(json.dumps(content))
    extended.is_target = tokenizer.is_target
    return extended


def learn_merges(
    words: Mapping[Word, int], n_pieces: int, known: Collection[str], min_frequency: int = 1
) -> list[Merge]:
    """Returns the merges of adjacent pieces that occur most often, each counted after those before it.

    Of merges that occur equally often, the first in the order of their characters is taken.

    Args:
        words: Number of occurrences of each word.
        n_pieces: Maximum number of merges that make a new piece.
        known: Pieces that exist.
        min_frequency: Minimum number of occurrences of a merge.
    """
    spelled, counts = [list(word) for word in words], list(words.values())
    frequency, places = Counter[Merge](), dict[Merge, set[int]]()
    for number, pieces in enumerate(spelled):
        for pair in pairwise(pieces):
            frequency[pair] += counts[number]
            places.setdefault(pair, set()).add(number)
    queue = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(queue)
    merges, pieces_made = list[Merge](), set(known)
    while queue and n_pieces > 0:
        count, pair = heapq.heappop(queue)
        if -count != frequency[pair]:  # it has changed since, and stands in the queue again if it occurs
            continue
        if -count < min_frequency:
            break
        merges.append(pair)
        n_pieces -= "".join(pair) not in pieces_made
        pieces_made.add("".join(pair))
        changed = set[Merge]()
        for number in places.pop(pair):
            changed |= _merge_in(spelled, counts[number], number, pair, frequency, places)
        for other in changed - {pair}:
            if frequency[other] > 0:
                heapq.heappush(queue, (-frequency[other], other))
        frequency[pair] = 0
    return merges


def _merge_in(
    spelled: list[list[str]], count: int, number: int, pair: Merge, frequency: Counter[Merge],
    places: dict[Merge, set[int]],
) -> set[Merge]:  # fmt: skip
    """Merges a pair of pieces in a word; returns the pairs whose frequency has changed."""
    pieces = spelled[number]
    merged, index = list[str](), 0
    while index < len(pieces):
        is_pair = tuple(pieces[index : index + 2]) == pair
        merged.append("".join(pair) if is_pair else pieces[index])
        index += 1 + is_pair
    before, after = (Counter(pairwise(word)) for word in (pieces, merged))
    for other, n in before.items():
        frequency[other] -= n * count
    for other, n in after.items():
        frequency[other] += n * count
        places.setdefault(other, set()).add(number)
    spelled[number] = merged
    return {*before, *after}


def row_origins(before: Tokenizer, after: Tokenizer) -> list[list[int]]:
    """Returns for each id of an extended tokenizer the ids of the one before whose mean its embedding begins with.

    A new piece begins as the mean of the pieces that its text had before, the tag of a new language as the mean of the
    tags, or of all tokens if there were none.

    Source: Koto et al. 2021, "IndoBERTweet", which finds the mean of subwords better than other initializations.
    """
    n_text, n_tags = before.vocab_size - len(before.tags), len(before.tags)
    new_tags = len(after.tags) - n_tags
    n_pieces = after.vocab_size - new_tags - before.vocab_size
    origins = [[token] for token in range(n_text)]
    if n_pieces and isinstance(after, BytePairTokenizer):
        parts = dict(enumerate(origins))
        for left, right, merged in after.merges():
            if merged >= n_text:
                parts.setdefault(merged, parts[left] + parts[right])
        origins = [parts[token] for token in range(n_text + n_pieces)]
    tags = [[token] for token in range(n_text, before.vocab_size)]
    known = list(range(n_text, before.vocab_size)) or list(range(n_text))
    return [*origins, *tags, *[known] * new_tags]
