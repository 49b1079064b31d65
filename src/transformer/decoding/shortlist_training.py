"""Learns from a corpus which target tokens go with each source token."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from transformer.decoding import Shortlist
from transformer.errors import ConfigError, DataError
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import EOS_ID

Item = TypeVar("Item")
Pair = tuple[Sequence[int], Sequence[int]]
ITERATIONS: Final = 3
CHUNK_PAIRS: Final = 10_000
"""Sentence pairs whose tokens are paired at a time."""
MERGED_AT: Final = 20_000_000
"""Counts that are held before those of the same tokens are added up."""
FORMAT: Final = 1


def learn_shortlist(
    pairs: Sequence[Pair],
    vocabularies: tuple[int, int],
    *,
    best: int = 30,
    frequent: int = 200,
    done: Callable[[int], None] | None = None,
) -> Shortlist:
    """The `best` target tokens of each source token by IBM model 1, and the `frequent` tokens of all.

    Args:
        pairs: tokens of sentences and their translations, without control ids.
        vocabularies: sizes of the source's and the target's.
        best: tokens that a source token brings along; EOS is a source token of every sentence.
        frequent: tokens that every sentence may use.
        done: called with the number of pairs gone through, `ITERATIONS` times as many in all.

    Raises:
        DataError: there are no pairs.
        ConfigError: a number below 1.

    Source: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", Sec. 4.1.
    """
    if not pairs:
        raise DataError("there are no pairs to learn a shortlist from; give a corpus")
    if best < 1 or frequent < 1:
        raise ConfigError(f"best={best} and frequent={frequent} are not both above 0")
    table = _Table(vocabularies[1])
    for _ in range(ITERATIONS):
        counts = _Counts()
        for start in range(0, len(pairs), CHUNK_PAIRS):
            chunk = pairs[start : start + CHUNK_PAIRS]
            keys, target_position = _paired(chunk, vocabularies[1])
            weights = table.probabilities(keys)
            share = np.bincount(target_position, weights)[target_position]
            counts.add(keys, weights / share)
            if done is not None:
                done(len(chunk))
        table = _Table(vocabularies[1], *counts.merged())
    return Shortlist(
        torch.from_numpy(_most_frequent(pairs, vocabularies[1], frequent)),
        torch.from_numpy(table.best(vocabularies[0], best)),
        vocabularies[1],
    )


def spaced(items: Iterable[Item], most: int) -> list[Item]:
    """Every item, or every second, fourth, ... so that there are at most so many; no more than that are held."""
    kept: list[Item] = []
    step = 1
    for place, item in enumerate(items):
        if place % step == 0:
            kept.append(item)
            if len(kept) > most:
                kept, step = kept[::2], 2 * step
    return kept


def coverage(shortlist: Shortlist, pairs: Sequence[Pair]) -> tuple[float, float]:
    """The share of target tokens that the shortlists of their sources hold, and the tokens of a list on average."""
    held = total = listed = 0
    for source, target in pairs:
        (may_use,) = shortlist.of(torch.tensor([[*source, EOS_ID]]))
        held += int(may_use[[*target]].sum())
        total, listed = total + len(target), listed + int(may_use.sum())
    return held / max(1, total), listed / max(1, len(pairs))


def save_shortlist(path: Path, shortlist: Shortlist, tokenizers: TokenizerPair) -> None:
    """Writes a shortlist as safetensors, with the fingerprint of the tokenizers that it belongs to."""
    tensors = {"always": shortlist.always.int().contiguous(), "by_token": shortlist.by_token.int().contiguous()}
    kept = {"format": FORMAT, "vocab_size": shortlist.vocab_size, "tokenizers": _fingerprint(tokenizers)}
    path.write_bytes(save(tensors, {"shortlist": json.dumps(kept)}))


def refuse_other_ids(tokenizers: TokenizerPair) -> None:
    """Refuses vocabularies that are numbered otherwise than ours: a list holds the ids that end a text.

    Raises:
        ConfigError: the ids that steer the model are not ours.
    """
    if (tokenizers.source.special_tokens.eos, tokenizers.target.special_tokens.eos) != (EOS_ID, EOS_ID):
        raise ConfigError("shortlists are of translators that are trained here, or of Marian; leave the shortlist out")


def load_shortlist(path: Path, tokenizers: TokenizerPair) -> Shortlist:
    """Reads what `save_shortlist` wrote.

    Raises:
        DataError: it is something else, or belongs to other tokenizers.
    """
    try:
        with safe_open(path, framework="pt") as file:
            kept: dict[str, Any] = dict(json.loads((file.metadata() or {}).get("shortlist", "{}")))
            always, by_token = (file.get_tensor(name).long() for name in ("always", "by_token"))
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no shortlist ({error}); make one with transformer shortlist") from error
    if kept.get("format") != FORMAT or kept.get("tokenizers") != _fingerprint(tokenizers):
        raise DataError(f"{path} was made for another model's tokenizers; make one with transformer shortlist")
    size = tokenizers.target.vocab_size
    whole = torch.cat([always.flatten(), by_token.flatten()])
    fits = always.dim() == 1 and by_token.dim() == 2 and len(by_token) == tokenizers.source.vocab_size
    if not fits or EOS_ID not in always or not 0 <= int(whole.min()) <= int(whole.max()) < size:
        raise DataError(f"{path} names tokens that there are not; make it again with transformer shortlist")
    return Shortlist(always, by_token, size)


def _fingerprint(tokenizers: TokenizerPair) -> str:
    return f"{tokenizers.source.fingerprint()} {tokenizers.target.fingerprint()}"


def _paired(pairs: Sequence[Pair], target_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every source token, EOS too, with every target token of its sentence; and the target token's place in the chunk.

    A pair is source * target_size + target.
    """
    sources = [np.array([*source, EOS_ID]) for source, _ in pairs]
    targets = [np.array(target, dtype=np.int64) for _, target in pairs]
    keys = [np.add.outer(target, source * target_size).ravel() for source, target in zip(sources, targets, strict=True)]
    repeats = np.repeat([len(source) for source in sources], [len(target) for target in targets])
    return np.concatenate(keys), np.repeat(np.arange(len(repeats)), repeats)


@dataclass
class _Counts:
    """Sums by key, of which those of like keys are added up now and then."""

    keys: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    weights: list[NDArray[np.float64]] = field(default_factory=list[NDArray[np.float64]])
    held: int = 0

    def add(self, keys: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Adds weights to their keys."""
        own, place = np.unique(keys, return_inverse=True)
        self.keys.append(own)
        self.weights.append(np.asarray(np.bincount(place, weights), np.float64))
        self.held += len(own)
        if self.held > MERGED_AT:
            keys, weights = self.merged()
            self.keys, self.weights, self.held = [keys], [weights], 0

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All keys in ascending order, and their sums."""
        keys, place = np.unique(np.concatenate(self.keys), return_inverse=True)
        return keys, np.bincount(place, np.concatenate(self.weights)).astype(np.float64)


class _Table:
    """How probable each target token is given a source token; the same for all until something was counted."""

    def __init__(
        self, target_size: int, keys: NDArray[np.int64] | None = None, counts: NDArray[np.float64] | None = None
    ) -> None:
        self.target_size, self.keys = target_size, keys
        if keys is not None and counts is not None:
            sources = keys // target_size
            self.values = counts / np.bincount(sources, counts)[sources]

    def probabilities(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of pairs that were counted."""
        return np.ones(len(keys)) if self.keys is None else self.values[np.searchsorted(self.keys, keys)]

    def best(self, source_size: int, n: int) -> NDArray[np.int64]:
        """The n most probable target tokens of each source token, filled up with EOS."""
        assert self.keys is not None
        sources = self.keys // self.target_size
        order = np.lexsort((-self.values, sources))
        sources, targets = sources[order], (self.keys % self.target_size)[order]
        place = np.arange(len(order)) - np.searchsorted(sources, sources)
        kept = place < n
        found = np.full((source_size, n), EOS_ID, dtype=np.int64)
        found[sources[kept], place[kept]] = targets[kept]
        return found


def _most_frequent(pairs: Sequence[Pair], size: int, n: int) -> NDArray[np.int64]:
    """EOS and the n most frequent target tokens, in ascending order."""
    counts = np.zeros(size, dtype=np.int64)
    for chunk in _chunks([target for _, target in pairs]):
        counts += np.bincount(chunk, minlength=size)
    most = np.argsort(-counts, kind="stable")[:n]
    return np.unique([EOS_ID, *most[counts[most] > 0]])


def _chunks(rows: Sequence[Sequence[int]]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(rows), CHUNK_PAIRS):
        yield np.concatenate([np.array(row, dtype=np.int64) for row in rows[start : start + CHUNK_PAIRS]])
