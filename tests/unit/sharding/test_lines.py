"""Shards of text files."""

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.errors import DataError
from transformer.sharding.blocked_gzip import is_blocked
from transformer.sharding.lines import TextFiles

LIMIT = 1 << 20


def lines_of(n_shards: int, *paths: Path, block_lines: int = 1) -> list[list[tuple[bytes, ...]]]:
    files = TextFiles(paths, block_lines)
    return [list(files.read(shard, LIMIT)) for shard in files.divide(n_shards)]


def blocked(content: bytes, size: int) -> bytes:
    """Returns a blocked gzip file with blocks of `size` bytes, and the empty one at the end that bgzip writes."""

    def blocks() -> Iterator[bytes]:
        for start in [*range(0, len(content), size), len(content)]:
            packer = zlib.compressobj(wbits=-15)
            piece = content[start : start + size]
            packed = packer.compress(piece) + packer.flush()
            header = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff"
            fields = b"XX\x01\x00?" + b"BC" + struct.pack("<HH", 2, len(packed) + 30)  # one before the size
            yield (
                header
                + struct.pack("<H", len(fields))
                + fields
                + packed
                + struct.pack("<LL", zlib.crc32(piece), len(piece))
            )

    return b"".join(blocks())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=40), st.booleans(), st.data()
)
def test_shards_have_each_line_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], is_terminated: bool, data: st.DataObject
) -> None:
    """Catches a line that is cut, lost or done twice at the edge of a shard or block, and an empty last line."""
    content = b"\n".join(lines) + b"\n" * (is_terminated and bool(lines))
    folder = tmp_path_factory.mktemp("shards")
    paths = [folder / "text", folder / "text.gz"]
    paths[0].write_bytes(content)
    paths[1].write_bytes(blocked(content, data.draw(st.integers(1, 50))))
    n_shards, block_lines = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 2, 5]))
    for path in paths:
        files = TextFiles([path], block_lines)
        shards = files.divide(n_shards)
        parts = [[line for (line,) in files.read(shard, LIMIT)] for shard in shards]
        assert b"".join(line for part in parts for line in part) == content
        assert [line for part in parts for line in part] == content.splitlines(keepends=True) or b"\r" in content
        assert len(shards) <= n_shards
        assert all(parts)
        assert [shard.first for shard in shards] == [sum(map(len, parts[:n])) for n in range(len(parts))]
        assert all(shard.first % block_lines == 0 for shard in shards)


def test_files_are_divided_at_the_same_lines(tmp_path: Path) -> None:
    """Catches pairs of lines that drift apart from one shard to the next."""
    paths = [tmp_path / "source", tmp_path / "target.gz", tmp_path / "blocked.gz"]
    texts = [b"".join(b"%d%s\n" % (n, b"x" * (n * width % 23)) for n in range(3000)) for width in (1, 5, 7)]
    contents = [texts[0], gzip.compress(texts[1]), blocked(texts[2], 5000)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    parts = lines_of(7, *paths, block_lines=10)
    assert len(parts) == 7
    rows = [row for part in parts for row in part]
    assert [b"".join(column) for column in zip(*rows, strict=True)] == texts
    assert all(len({line.rstrip(b"x\n") for line in row}) == 1 for row in rows)


def test_a_file_with_another_number_of_lines_is_refused(tmp_path: Path) -> None:
    """Catches pairs of which one side is missing."""
    for name, n_lines in (("a", 3), ("b", 4)):
        (tmp_path / name).write_bytes(b"one\n" * n_lines)
    with pytest.raises(DataError, match=r"a has 3 lines, but .*b has 4"):
        TextFiles([tmp_path / "a", tmp_path / "b"]).divide(2)


def test_shards_are_of_about_equal_size(tmp_path: Path) -> None:
    """Catches shards that are cut by the number of blocks instead of bytes."""
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"x" * (number % 50) + b"\n" for number in range(20_000)))
    for block_lines in (1, 10):
        sizes = [sum(len(line) for (line,) in part) for part in lines_of(7, path, block_lines=block_lines)]
        assert len(sizes) == 7
        assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize("kind", ["gzip", "blocked gzip", "zstd"])
def test_compressed_files_have_the_same_lines(tmp_path: Path, kind: str) -> None:
    """Catches positions in the compressed file taken for positions of lines."""
    content = "".join(f"line {number} {'é' * (number % 11)}\n" for number in range(5000)).encode()
    path = tmp_path / f"text{'.zst' if kind == 'zstd' else '.gz'}"
    if kind == "zstd":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(content)
    else:
        path.write_bytes(gzip.compress(content) if kind == "gzip" else blocked(content, 7001))
    shards = lines_of(5, path)
    assert len(shards) > 1
    assert b"".join(line for part in shards for (line,) in part) == content
    assert TextFiles([path]).sequential == ([] if kind == "blocked gzip" else [path])


def test_a_shard_of_a_blocked_file_is_read_without_what_precedes_it(tmp_path: Path) -> None:
    """Catches a file that is unpacked from its beginning for each shard."""
    path = tmp_path / "text.gz"
    content = b"".join(b"%d\n" % number for number in range(9000))
    packed = bytearray(blocked(content, 1000))
    path.write_bytes(packed)
    files = TextFiles([path])
    last = files.divide(4)[-1]
    packed[200:400] = bytes(200)
    path.write_bytes(packed)
    assert b"".join(line for (line,) in files.read(last, LIMIT)) == content[content.index(b"\n%d\n" % last.first) + 1 :]
    with pytest.raises(DataError, match="damaged or cut short"):
        TextFiles([path]).divide(4)
    path.write_bytes(blocked(content, 1000)[:-40])
    with pytest.raises(DataError, match="damaged or cut short"):
        TextFiles([path]).divide(4)


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    """Catches a traceback of the operating system's error."""
    assert not is_blocked(tmp_path / "none.gz")
    for name in ("none", "none.gz"):
        with pytest.raises(DataError, match="No such file"):
            TextFiles([tmp_path / name]).divide(2)
