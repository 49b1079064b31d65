import json
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch

from transformer.errors import DataError
from transformer.storage.tensor_files import load_tensors


def with_header(header: bytes, data: bytes = bytes(8)) -> bytes:
    """Returns the content of a safetensors file with a header of one's own."""
    return struct.pack("<Q", len(header)) + header + data


ENTRY = '{"dtype": "F32", "shape": [1], "data_offsets": [%d, %d]}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<Q", 2**62) + b"{}", "its header claims 4,611,686,018,427,387,904 bytes"),
        (with_header(f'{{"a": {ENTRY % (0, 4)}, "a": {ENTRY % (4, 8)}}}'.encode()), "not one of tensors"),
        (with_header(b"[" * 100_000), "not one of tensors"),
        (with_header(f'{{"a": {ENTRY % (0, 4)}, "b": {ENTRY % (8, 12)}}}'.encode()), "does not describe it"),
        (with_header(json.dumps({"a": {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 8]}}).encode()), "descr"),
        (b"\x00", "its header|not one of tensors|cut short"),
    ],
    ids=["huge", "duplicate", "deep", "beyond the end", "huge shape", "cut"],
)
def test_headers_that_lie_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Catches memory taken for a header that claims it, and the second of two tensors of one name taken silently."""
    (path := tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tensors(path)


def test_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Catches a check that refuses files of the library itself."""
    tensors = {"a": torch.arange(3.0), "b": torch.tensor([[1, -2]], dtype=torch.int8)}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    loaded = load_tensors(tmp_path / "x.safetensors")
    assert loaded.keys() == tensors.keys()
    (tmp_path / "x.safetensors").write_bytes(b"")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items()), "the file has changed since"
