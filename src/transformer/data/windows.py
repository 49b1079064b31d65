"""Running text as windows of tokens."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.data.batch import WindowBatch
from transformer.errors import DataError
from transformer.interfaces import DatasetMix
from transformer.text.lines import Invalid, read_lines
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.running_text import encode_lines


def running_text(paths: Sequence[Path], invalid: Invalid = "error") -> Iterator[str]:
    """Yields the lines of files with their ends, one file after another.

    Raises:
        DataError: a file cannot be read.
    """
    for path in paths:
        for line in read_lines(path, invalid=invalid):
            yield line + "\n"


def write_tokens(path: Path, lines: Iterator[str], tokenizer: Tokenizer, progress: Callable[[int], None]) -> int:
    """Writes the tokens of a running text as one array of int32 (.npy); returns how many they are.

    Args:
        path: of the file.
        lines: with their ends.
        tokenizer: of the text.
        progress: is told the lines so far.
    """
    done, count, raw = 0, 0, path.with_suffix(".raw")
    with raw.open("wb") as file:
        for more, ids in encode_lines(tokenizer, lines):
            file.write(np.asarray(ids, np.int32).tobytes())
            done, count = done + more, count + len(ids)
            progress(done)
    whole = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(count,))
    if count:
        whole[:] = np.memmap(raw, np.int32, mode="r")
        whole.flush()
    raw.unlink()
    return count


def open_tokens(path: Path) -> NDArray[np.int32]:
    """The tokens of a file of `write_tokens`, read from it on demand."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


class WindowDataset:
    """Windows of a running text, each of the same length.

    Args:
        tokens: of the text.
        window: tokens of a window.
        stride: from the start of one to the start of the next.
        scored: tokens of a window that the loss counts.
        frame: ids that are put before and after each window.

    Raises:
        DataError: the text is shorter than a window.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        window: int,
        stride: int,
        scored: int,
        frame: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> None:
        count = 1 + (len(tokens) - window) // stride
        if count < 1:
            raise DataError(
                f"a text of {len(tokens):,} tokens has no window of {window}; give more text, or shorten it"
            )
        self._tokens, self._window, self._stride, self._scored, self._frame = tokens, window, stride, scored, frame
        length = window + sum(map(len, frame))
        self.lengths: NDArray[np.int32] = np.full((count, 1), length, np.int32)
        self.mix: tuple[DatasetMix, ...] = ()

    def fetch(self, ids: NDArray[np.integer[Any]]) -> WindowBatch:
        """The windows of the given numbers."""
        starts = ids.astype(np.int64) * self._stride
        rows = self._tokens[starts[:, None] + np.arange(self._window)].astype(np.int64)
        before, after = (np.tile(np.array(each, np.int64), (len(ids), 1)) for each in self._frame)
        framed = np.concatenate([before, rows, after], axis=1)
        return WindowBatch(torch.from_numpy(framed), self._scored * len(ids))
