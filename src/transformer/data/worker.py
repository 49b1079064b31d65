"""A process that encodes: blocks of text on standard input, blocks of tokens on standard output.

Both streams are messages of Arrow record batches; each block that goes in is one that comes out. The first message is
a line of JSON, the encoder itself. The process ends with its input.
"""

import contextlib
import json
import signal
import sys
from typing import Any

import pyarrow as pa

from transformer.data.arrow_ipc import TEXTS, TOKENS, batch_of
from transformer.data.encoding import BlockEncoder


def main() -> None:
    """Encodes until the input ends. Ctrl-C is for the process that gives the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = sys.stdin.buffer.readline()
    if not setup:  # there was less work than there are processes
        return
    encoder = BlockEncoder.from_json(json.loads(setup))
    out: Any = sys.stdout.buffer
    with pa.ipc.open_stream(sys.stdin.buffer) as texts, pa.ipc.new_stream(out, TOKENS) as tokens:
        for block in texts:
            sides = (block.column(name).to_pylist() for name in TEXTS.names)
            batch, facts = batch_of(encoder.encode(*sides))
            tokens.write_batch(batch, custom_metadata=facts)
            out.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # nobody wants the rest
        main()
