"""A worker process that reads blocks of text from standard input and writes blocks of tokens to standard output.

Both streams consist of Arrow record batches, and every input block results in one output block. The input starts with
a line of JSON that describes the encoder. The process ends at the end of its input.
"""

import contextlib
import json
import signal
import sys
from typing import Any

import pyarrow as pa

from transformer.data.arrow_ipc import TEXT_SCHEMA, TOKEN_SCHEMA, serialize_block
from transformer.data.encoding import BlockEncoder


def main() -> None:
    """Encodes until the input ends. Ctrl-C is ignored, because the parent process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = sys.stdin.buffer.readline()
    if not setup:  # there were fewer blocks than processes
        return
    encoder = BlockEncoder.from_json(json.loads(setup))
    out: Any = sys.stdout.buffer
    with pa.ipc.open_stream(sys.stdin.buffer) as texts, pa.ipc.new_stream(out, TOKEN_SCHEMA) as tokens:
        for block in texts:
            sides = (block.column(name).to_pylist() for name in TEXT_SCHEMA.names)
            batch, metadata = serialize_block(encoder.encode(*sides))
            tokens.write_batch(batch, custom_metadata=metadata)
            out.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent process has stopped reading
        main()
