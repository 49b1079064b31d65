"""Running text in windows (blocks) of tokens, for language modelling."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.data.batch import WindowBatch
from transformer.errors import DataError
from transformer.interfaces import ExampleGroup
from transformer.text.lines import Invalid, open_bytes, read_running_text
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.running_text import encode_lines

COUNTED_TOKENS: Final = 1 << 20
"""Tokens that are counted at a time."""


CHATS: Final = ("messages", "conversations")
"""Keys by which chats are recognized."""
MAX_FIRST_LINE: Final = 1 << 20
"""Size in bytes up to which the first line of a file is looked at."""


def check_is_text(path: Path) -> None:
    """Checks that a file does not hold chats as JSON lines, which would be learned as JSON.

    Raises:
        DataError: It does.
    """
    if not path.is_file():
        return  # which is reported elsewhere
    with open_bytes(path) as file:
        line = file.read(MAX_FIRST_LINE).partition(b"\n")[0]
    try:
        row = json.loads(line)
    except ValueError:
        return
    if key := next((key for key in CHATS if isinstance(row, dict) and key in row), None):
        raise DataError(
            f"{path} holds chats as JSON ({key}), not text; write each by the model's template with "
            "apply_chat_template(..., tokenize=False) of transformers, and read the file with data.special_tokens"
        )


def running_text(paths: Sequence[Path], invalid: Invalid = "error") -> Iterator[str]:
    """Yields the lines of files with their line ends, one file after another; long lines in parts.

    Raises:
        DataError: a file cannot be read.
    """
    for path in paths:
        yield from read_running_text(path, invalid)


def write_tokens(path: Path, lines: Iterator[str], tokenizer: Tokenizer, progress: Callable[[int], None]) -> int:
    """Writes the tokens of a running text as one array of int32 (.npy) and returns their number.

    Args:
        path: Path of the output file.
        lines: Lines with their line ends.
        tokenizer: Tokenizer of the text.
        progress: Callback that receives the number of lines encoded so far.
    """
    done, count, raw = 0, 0, path.with_suffix(".raw")
    with raw.open("wb") as file:
        for n_lines, ids in encode_lines(tokenizer, lines):
            file.write(np.asarray(ids, np.int32).tobytes())
            done, count = done + n_lines, count + len(ids)
            progress(done)
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.int32)), "fortran_order": False, "shape": (count,)}
    with path.open("wb") as whole, raw.open("rb") as tokens:  # not mapped: without space, that would end the process
        np.lib.format.write_array_header_1_0(whole, header)
        shutil.copyfileobj(tokens, whole)
    raw.unlink()
    return count


def open_tokens(path: Path) -> NDArray[np.int32]:
    """Memory-maps the tokens of a file that `write_tokens` wrote."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


def count_fallback(tokens: NDArray[np.int32], tokenizer: Tokenizer) -> int:
    """Counts the tokens that stand for a part of a character or for unknown text."""
    is_fallback = tokenizer.is_fallback()
    return sum(
        int(is_fallback[tokens[start : start + COUNTED_TOKENS]].sum())
        for start in range(0, len(tokens), COUNTED_TOKENS)
    )


class WindowDataset:
    """A dataset of windows of a running text, all of the same length.

    Args:
        tokens: Token ids of the text.
        window: Tokens of a window.
        stride: Tokens from the start of one window to the start of the next.
        scored: Tokens of a window that the loss counts.
        boundary_tokens: Ids added before and after each window.

    Raises:
        DataError: the text is shorter than a window.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        window: int,
        stride: int,
        scored: int,
        boundary_tokens: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> None:
        count = 1 + (len(tokens) - window) // stride
        if count < 1:
            raise DataError(
                f"a text of {len(tokens):,} tokens has no window of {window}; give more text, or shorten it"
            )
        self._tokens, self._window, self._stride, self._scored = tokens, window, stride, scored
        self._boundary_tokens = boundary_tokens
        length = window + sum(map(len, boundary_tokens))
        self.lengths: NDArray[np.int32] = np.full((count, 1), length, np.int32)
        self.mix: tuple[ExampleGroup, ...] = ()

    def fetch(self, ids: NDArray[np.integer]) -> WindowBatch:
        """Returns the windows of the given numbers."""
        starts = ids.astype(np.int64) * self._stride
        rows = self._tokens[starts[:, None] + np.arange(self._window)].astype(np.int64)
        before, after = (np.tile(np.array(side, np.int64), (len(ids), 1)) for side in self._boundary_tokens)
        windows = np.concatenate([before, rows, after], axis=1)
        return WindowBatch(torch.from_numpy(windows), self._scored * len(ids))
