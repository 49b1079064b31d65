"""How blocks travel between processes: as Arrow record batches, with the small things as JSON beside them."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from transformer.data.encoding import EncodedBlock
from transformer.data.ragged import Ragged, list_array

TEXTS: Final = pa.schema([("source", pa.large_string()), ("target", pa.large_string())])
TOKENS: Final = pa.schema(
    [
        ("source", pa.list_(pa.int32())),
        ("target", pa.list_(pa.int32())),
        ("held_out", pa.uint8()),
        ("digest", pa.binary(16)),
    ]
)
FACTS: Final = ("read", "dropped", "fallback_bytes", "held_out_text", "test_sources")


def texts_of(sources: Sequence[str], targets: Sequence[str]) -> pa.RecordBatch:
    """A block of text as a record batch."""
    return pa.record_batch([pa.array(side, pa.large_string()) for side in (sources, targets)], schema=TEXTS)


def batch_of(block: EncodedBlock) -> tuple[pa.RecordBatch, dict[str, str]]:
    """A block of tokens as a record batch and what goes beside it."""
    n = len(block.source)
    given = block.digests if len(block.digests) else np.zeros((n, 2), np.uint64)
    digests = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(given.tobytes())])
    held_out = pa.array(block.held_out.astype(np.uint8))
    columns = [list_array(block.source, pa.int32()), list_array(block.target, pa.int32()), held_out, digests]
    facts = json.dumps({name: getattr(block, name) for name in FACTS})
    return pa.record_batch(columns, schema=TOKENS), {"facts": facts}


def block_of(batch: pa.RecordBatch, facts: bytes) -> EncodedBlock:
    """What `batch_of` was given."""
    given: dict[str, Any] = json.loads(facts)
    digests = np.frombuffer(batch.column("digest").buffers()[1] or b"", np.uint64)[: 2 * batch.num_rows]
    return EncodedBlock(
        _ragged(batch.column("source")),
        _ragged(batch.column("target")),
        batch.column("held_out").to_numpy().astype(bool),
        digests.reshape(-1, 2),
        read=given["read"],
        dropped=Counter(given["dropped"]),
        fallback_bytes=given["fallback_bytes"],
        held_out_text=[(source, target) for source, target in given["held_out_text"]],
        test_sources=given["test_sources"],
    )


def _ragged(column: pa.ListArray) -> Ragged:
    return Ragged(column.values.to_numpy(), np.diff(column.offsets.to_numpy()).astype(np.int64))
