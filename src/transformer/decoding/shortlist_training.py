"""Training of vocabulary shortlists: learns the likely target tokens of each source token with IBM model 1."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from transformer.decoding import Shortlist
from transformer.errors import ConfigError, DataError
from transformer.storage.atomic import replace_bytes
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import EOS_ID

Item = TypeVar("Item")
Pair = tuple[Sequence[int], Sequence[int]]
ITERATIONS: Final = 3
CHUNK_PAIRS: Final = 10_000
"""Number of sentence pairs whose tokens are paired at a time."""
MERGE_THRESHOLD: Final = 20_000_000
"""Number of counts that are stored before those with equal keys are added up."""
FORMAT: Final = 1


def learn_shortlist(
    pairs: Sequence[Pair],
    vocabularies: tuple[int, int],
    *,
    best: int = 30,
    frequent: int = 200,
    done: Callable[[int], None] | None = None,
) -> Shortlist:
    """Learns the `best` target tokens of each source token by IBM model 1, and the `frequent` tokens of all sentences.

    Args:
        pairs: Tokens of sentences and their translations, without special tokens.
        vocabularies: Sizes of the source and target vocabularies.
        best: Number of target tokens per source token; EOS is a source token of every sentence.
        frequent: Number of most frequent tokens that every translation may contain.
        done: Callback for progress, called with numbers of pairs that add up to `ITERATIONS` times the pairs.

    Raises:
        DataError: `pairs` is empty.
        ConfigError: `best` or `frequent` is below 1.

    Source: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", Sec. 4.1.
    """
    if not pairs:
        raise DataError("a shortlist cannot be learned from an empty corpus; give sentence pairs")
    if best < 1 or frequent < 1:
        raise ConfigError(f"best={best} and frequent={frequent} are not both above 0")
    table = _TranslationTable(vocabularies[1], np.zeros(0, np.int64), np.zeros(0))
    for _ in range(ITERATIONS):
        counts = _Counts()
        for start in range(0, len(pairs), CHUNK_PAIRS):
            chunk = pairs[start : start + CHUNK_PAIRS]
            keys, target_position = _token_pairs(chunk, vocabularies[1])
            probabilities = table.probabilities(keys)
            normalizer = np.bincount(target_position, probabilities)[target_position]
            counts.add(keys, probabilities / normalizer)
            if done is not None:
                done(len(chunk))
        table = _TranslationTable(vocabularies[1], *counts.merged())
    return Shortlist(
        torch.from_numpy(_most_frequent(pairs, vocabularies[1], frequent)),
        torch.from_numpy(table.best(vocabularies[0], best)),
        vocabularies[1],
    )


def subsample_evenly(items: Iterable[Item], max_items: int) -> list[Item]:
    """Returns every item, or every second, fourth, ... one, so that at most `max_items` are ever in memory."""
    sample: list[Item] = []
    step = 1
    for index, item in enumerate(items):
        if index % step == 0:
            sample.append(item)
            if len(sample) > max_items:
                sample, step = sample[::2], 2 * step
    return sample


def coverage(shortlist: Shortlist, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Returns the share of target tokens that are in their sentences' shortlists, and the mean size of a shortlist."""
    covered = total = listed = 0
    for source, target in pairs:
        (allowed,) = shortlist.mask(torch.tensor([[*source, EOS_ID]]))
        covered += int(allowed[[*target]].sum())
        total, listed = total + len(target), listed + int(allowed.sum())
    return covered / max(1, total), listed / max(1, len(pairs))


def save_shortlist(path: Path, shortlist: Shortlist, tokenizers: TokenizerPair) -> None:
    """Writes a shortlist as safetensors, with the fingerprint of its tokenizers.

    Raises:
        OutputError: The file cannot be written; an older one is unchanged.
    """
    tensors = {"always": shortlist.always.int().contiguous(), "by_token": shortlist.by_token.int().contiguous()}
    metadata = {"format": FORMAT, "vocab_size": shortlist.vocab_size, "tokenizers": _fingerprint(tokenizers)}
    replace_bytes(path, save(tensors, {"shortlist": json.dumps(metadata)}))


def check_special_token_ids(tokenizers: TokenizerPair) -> None:
    """Checks that both vocabularies have this package's id of EOS, which shortlists contain.

    Raises:
        ConfigError: A vocabulary has another id of EOS.
    """
    if (tokenizers.source.special_tokens.eos, tokenizers.target.special_tokens.eos) != (EOS_ID, EOS_ID):
        raise ConfigError(
            "shortlists need a translator that was trained here, or one of Marian; leave the shortlist out"
        )


def load_shortlist(path: Path, tokenizers: TokenizerPair) -> Shortlist:
    """Reads a shortlist written by `save_shortlist`.

    Raises:
        DataError: The file is not a shortlist, or belongs to other tokenizers.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, object] = dict(json.loads((file.metadata() or {}).get("shortlist", "{}")))
            always, by_token = (file.get_tensor(name).long() for name in ("always", "by_token"))
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a shortlist, or is damaged; make one with transformer shortlist") from error
    if metadata.get("format") != FORMAT or metadata.get("tokenizers") != _fingerprint(tokenizers):
        raise DataError(f"{path} was made for another model's tokenizers; make one with transformer shortlist")
    size = tokenizers.target.vocab_size
    tokens = torch.cat([always.flatten(), by_token.flatten()])
    is_valid = always.dim() == 1 and by_token.dim() == 2 and len(by_token) == tokenizers.source.vocab_size
    if not is_valid or EOS_ID not in always or not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
        raise DataError(f"{path} contains tokens outside the vocabulary; make it again with transformer shortlist")
    return Shortlist(always, by_token, size)


def _fingerprint(tokenizers: TokenizerPair) -> str:
    return f"{tokenizers.source.fingerprint()} {tokenizers.target.fingerprint()}"


def _token_pairs(pairs: Sequence[Pair], target_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns keys of all pairs of a source token, EOS included, and a target token of the same sentence.

    A key is source * target_size + target. Also returned is the position of each key's target token in the chunk.
    """
    sources = [np.array([*source, EOS_ID]) for source, _ in pairs]
    targets = [np.array(target, dtype=np.int64) for _, target in pairs]
    keys = [np.add.outer(target, source * target_size).ravel() for source, target in zip(sources, targets, strict=True)]
    repeats = np.repeat([len(source) for source in sources], [len(target) for target in targets])
    return np.concatenate(keys), np.repeat(np.arange(len(repeats)), repeats)


@dataclass
class _Counts:
    """Sums of weights by key; equal keys of different chunks are merged when there are many.

    Attributes:
        keys: Keys of each chunk, distinct and in ascending order.
        weights: Sums of the weights of each key.
        size: Number of keys in all chunks.
    """

    keys: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    weights: list[NDArray[np.float64]] = field(default_factory=list[NDArray[np.float64]])
    size: int = 0

    def add(self, keys: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Adds weights to their keys."""
        distinct, index = np.unique(keys, return_inverse=True)
        self.keys.append(distinct)
        self.weights.append(np.asarray(np.bincount(index, weights), np.float64))
        self.size += len(distinct)
        if self.size > MERGE_THRESHOLD:
            keys, weights = self.merged()
            self.keys, self.weights, self.size = [keys], [weights], 0

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Returns all keys in ascending order, and their sums."""
        keys, index = np.unique(np.concatenate(self.keys), return_inverse=True)
        return keys, np.bincount(index, np.concatenate(self.weights)).astype(np.float64)


class _TranslationTable:
    """The probability of each target token given a source token; uniform without keys.

    Args:
        target_size: Size of the target vocabulary.
        keys: Keys of the counted token pairs, in ascending order.
        counts: Expected counts of the keys.
    """

    def __init__(self, target_size: int, keys: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
        self.target_size, self.keys = target_size, keys
        sources = keys // target_size
        self.values = counts / np.bincount(sources, counts)[sources]

    def probabilities(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the probabilities of counted token pairs."""
        return self.values[np.searchsorted(self.keys, keys)] if len(self.keys) else np.ones(len(keys))

    def best(self, source_size: int, n: int) -> NDArray[np.int64]:
        """Returns the n most probable target tokens of each source token, padded with EOS."""
        sources = self.keys // self.target_size
        order = np.lexsort((-self.values, sources))
        sources, targets = sources[order], (self.keys % self.target_size)[order]
        ranks = np.arange(len(order)) - np.searchsorted(sources, sources)
        is_best = ranks < n
        best = np.full((source_size, n), EOS_ID, dtype=np.int64)
        best[sources[is_best], ranks[is_best]] = targets[is_best]
        return best


def _most_frequent(pairs: Sequence[Pair], size: int, n: int) -> NDArray[np.int64]:
    """Returns EOS and the n most frequent target tokens, in ascending order."""
    counts = np.zeros(size, dtype=np.int64)
    for chunk in _chunks([target for _, target in pairs]):
        counts += np.bincount(chunk, minlength=size)
    most = np.argsort(-counts, kind="stable")[:n]
    return np.unique([EOS_ID, *most[counts[most] > 0]])


def _chunks(rows: Sequence[Sequence[int]]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(rows), CHUNK_PAIRS):
        yield np.concatenate([np.array(row, dtype=np.int64) for row in rows[start : start + CHUNK_PAIRS]])
