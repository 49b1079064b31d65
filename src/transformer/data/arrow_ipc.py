"""Serialization of blocks between processes: Arrow record batches, with counts as JSON metadata."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from transformer.data.encoding import EncodedBlock
from transformer.data.ragged import Ragged, list_array

TEXT_SCHEMA: Final = pa.schema([("source", pa.large_string()), ("target", pa.large_string())])
TOKEN_SCHEMA: Final = pa.schema(
    [
        ("source", pa.list_(pa.int32())),
        ("target", pa.list_(pa.int32())),
        ("held_out", pa.uint8()),
        ("digest", pa.binary(16)),
    ]
)
METADATA_FIELDS: Final = ("read", "dropped", "fallback_bytes", "held_out_text", "test_sources")


def serialize_texts(sources: Sequence[str], targets: Sequence[str]) -> pa.RecordBatch:
    """Returns a block of text as a record batch."""
    return pa.record_batch([pa.array(side, pa.large_string()) for side in (sources, targets)], schema=TEXT_SCHEMA)


def serialize_block(block: EncodedBlock) -> tuple[pa.RecordBatch, dict[str, str]]:
    """Returns a block of tokens as a record batch, and its counts as metadata of the batch."""
    n = len(block.source)
    digests = block.digests if len(block.digests) else np.zeros((n, 2), np.uint64)
    digest_column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, pa.py_buffer(digests.tobytes())])
    held_out = pa.array(block.held_out.astype(np.uint8))
    columns = [list_array(block.source, pa.int32()), list_array(block.target, pa.int32()), held_out, digest_column]
    metadata = json.dumps({name: getattr(block, name) for name in METADATA_FIELDS})
    return pa.record_batch(columns, schema=TOKEN_SCHEMA), {"facts": metadata}


def deserialize_block(batch: pa.RecordBatch, metadata: bytes) -> EncodedBlock:
    """Returns the block that `serialize_block` serialized."""
    counts: dict[str, Any] = json.loads(metadata)
    digests = np.frombuffer(batch.column("digest").buffers()[1] or b"", np.uint64)[: 2 * batch.num_rows]
    return EncodedBlock(
        _to_ragged(batch.column("source")),
        _to_ragged(batch.column("target")),
        batch.column("held_out").to_numpy().astype(bool),
        digests.reshape(-1, 2),
        read=counts["read"],
        dropped=Counter(counts["dropped"]),
        fallback_bytes=counts["fallback_bytes"],
        held_out_text=[(source, target) for source, target in counts["held_out_text"]],
        test_sources=counts["test_sources"],
    )


def _to_ragged(column: pa.ListArray) -> Ragged:
    return Ragged(column.values.to_numpy(), np.diff(column.offsets.to_numpy()).astype(np.int64))
