"""Running text in windows (blocks) of tokens, for language modelling."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

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
HEADER_BYTES: Final = 128
"""Length of the header of an array file (.npy), a multiple of 64."""
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


def write_tokens(output: BinaryIO, lines: Iterator[str], tokenizer: Tokenizer, progress: Callable[[int], None]) -> int:
    """Writes the tokens of a running text as one array of int32 (.npy) and returns their number.

    Args:
        output: File at its beginning.
        lines: Lines with their line ends.
        tokenizer: Tokenizer of the text.
        progress: Callback that receives the number of lines encoded so far.
    """
    done = count = 0
    output.write(_array_header(0))
    for n_lines, ids in encode_lines(tokenizer, lines):
        output.write(np.asarray(ids, np.int32).tobytes())  # not mapped: without space, that would end the process
        done, count = done + n_lines, count + len(ids)
        progress(done)
    output.seek(0)
    output.write(_array_header(count))
    return count


def _array_header(count: int) -> bytes:
    """Returns the header of an array file, which is equally long for any number of tokens."""
    descr = np.lib.format.dtype_to_descr(np.dtype(np.int32))
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({count},), }}"
    magic = np.lib.format.magic(1, 0) + (HEADER_BYTES - 10).to_bytes(2, "little")
    return magic + header.encode().ljust(HEADER_BYTES - 11) + b"\n"


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
