"""Shards of a text file."""

import gzip
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.errors import DataError
from transformer.sharding.lines import index_file, read_shard

LIMIT = 1 << 20


def lines_of(path: Path, n_shards: int) -> list[list[bytes]]:
    return [list(read_shard(path, shard, LIMIT)) for shard in index_file(path, n_shards).shards]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=40), st.booleans(), st.data()
)
def test_shards_have_each_line_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], is_terminated: bool, data: st.DataObject
) -> None:
    """Catches a line that is cut, lost or done twice at the edge of a shard, and an empty last line."""
    content = b"\n".join(lines) + b"\n" * (is_terminated and bool(lines))
    path = tmp_path_factory.mktemp("shards") / "text"
    path.write_bytes(content)
    n_shards = data.draw(st.integers(1, 9))
    index = index_file(path, n_shards)
    shards = [list(read_shard(path, shard, LIMIT)) for shard in index.shards]
    assert [line for shard in shards for line in shard] == content.splitlines(keepends=True) or b"\r" in content
    assert b"".join(line for shard in shards for line in shard) == content
    assert len(shards) <= n_shards
    assert all(shards)
    assert [shard.first_line for shard in index.shards] == [sum(map(len, shards[:n])) for n in range(len(shards))]
    assert (index.n_bytes, index.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_shards_are_of_about_equal_size(tmp_path: Path) -> None:
    """Catches shards that are cut by the number of blocks instead of bytes."""
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"x" * (number % 50) + b"\n" for number in range(20_000)))
    sizes = [sum(map(len, shard)) for shard in lines_of(path, 7)]
    assert len(sizes) == 7
    assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_have_the_same_lines(tmp_path: Path, suffix: str) -> None:
    """Catches positions in the compressed file taken for positions of lines."""
    content = "".join(f"line {number} {'é' * (number % 11)}\n" for number in range(5000)).encode()
    path = tmp_path / f"text{suffix}"
    if suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(content)
    shards = lines_of(path, 5)
    assert len(shards) > 1
    assert b"".join(line for shard in shards for line in shard) == content


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    """Catches a traceback of the operating system's error."""
    with pytest.raises(DataError, match="No such file"):
        index_file(tmp_path / "none", 2)
