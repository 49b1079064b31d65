"""ZIP archives of which some members are replaced; all others keep their bytes and their compression."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from transformer.documents.text_file import MAX_BYTES
from transformer.errors import DataError

MAX_MEMBERS: Final = 20_000
"""Maximum number of members of an archive."""
MAX_RATIO: Final = 200
"""Maximum ratio of the size of a member to its compressed size, from `_SMALL` bytes on."""
_SMALL: Final = 1 << 20
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_HAS_DESCRIPTOR: Final = 1 << 3
_ENCRYPTED: Final = 1 << 0


@dataclass(frozen=True)
class Archive:
    """A ZIP archive.

    Attributes:
        name: Name of the file, for messages.
        content: Its bytes.
        members: Its members, in the order of the directory.
    """

    name: str
    content: bytes
    members: Sequence[zipfile.ZipInfo]

    def read(self, member: str) -> bytes:
        """Returns the bytes of a member.

        Raises:
            DataError: The archive lacks it, it is damaged, or it is unusually well compressed.
        """
        info = next((info for info in self.members if info.filename == member), None)
        if info is None:
            raise DataError(f"{self.name}: it lacks {member!r:.100}; the file is damaged or of another kind")
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{self.name}: it is encrypted; save it without a password")
        if info.file_size > max(_SMALL, MAX_RATIO * info.compress_size) or info.file_size > MAX_BYTES:
            raise DataError(f"{self.name}: {member!r:.100} unpacks to {info.file_size:,} bytes; the file is refused")
        data = self.content[slice(*self.data_range(info))]
        try:
            if info.compress_type == zipfile.ZIP_STORED:
                unpacked = data
            elif info.compress_type == zipfile.ZIP_DEFLATED:
                unpacked = zlib.decompressobj(-15).decompress(data, info.file_size + 1)
            else:
                raise DataError(f"{self.name}: {member!r:.100} has an unknown compression; save the file anew")
        except zlib.error as error:
            raise DataError(f"{self.name}: {member!r:.100} is damaged; save the file anew") from error
        if len(unpacked) != info.file_size or zlib.crc32(unpacked) != info.CRC:
            raise DataError(f"{self.name}: {member!r:.100} is damaged; save the file anew")
        return unpacked

    def replaced(self, changes: Mapping[str, bytes]) -> bytes:
        """Returns the archive with other contents of some members."""
        written: list[bytes] = []
        position = copied = 0
        entries: dict[int, tuple[int, bytes]] = {}
        for info in sorted(self.members, key=lambda info: info.header_offset):
            start, end = self.data_range(info)
            kept = self.content[copied : info.header_offset]
            record = self.content[info.header_offset : start], self.content[start:end]
            sizes = b""
            copied = end
            if info.filename in changes and changes[info.filename] != self.read(info.filename):
                record, sizes, copied = self._record(info, changes[info.filename], end)
            position += len(kept)
            entries[info.header_offset] = position, sizes
            written += [kept, *record]
            position += sum(map(len, record))
        directory = self._directory_start()
        written.append(self.content[copied:directory])
        position += len(written[-1])
        return b"".join([*written, self._directory(directory, position, entries)])

    def data_range(self, info: zipfile.ZipInfo) -> tuple[int, int]:
        """Returns where the compressed data of a member stand."""
        header = self.content[info.header_offset : info.header_offset + _LOCAL.size]
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise DataError(f"{self.name}: the archive is damaged; save the file anew")
        *_, n_name, n_extra = _LOCAL.unpack(header)
        start = info.header_offset + _LOCAL.size + n_name + n_extra
        return start, start + info.compress_size

    def _record(self, info: zipfile.ZipInfo, content: bytes, end: int) -> tuple[tuple[bytes, bytes], bytes, int]:
        """Returns the header and the data of a changed member, its sizes, and where the next member may begin."""
        start, _ = self.data_range(info)
        data = content if info.compress_type == zipfile.ZIP_STORED else _deflated(content, self._level(info))
        sizes = struct.pack("<III", zlib.crc32(content), len(data), len(content))
        header = bytearray(self.content[info.header_offset : start])
        if not info.flag_bits & _HAS_DESCRIPTOR:
            header[14:26] = sizes
            return (bytes(header), data), sizes, end
        signature = b"PK\x07\x08" if self.content[end : end + 4] == b"PK\x07\x08" else b""
        return (bytes(header), data + signature + sizes), sizes, end + len(signature) + len(sizes)

    def _level(self, info: zipfile.ZipInfo) -> int:
        """Returns the level at which a member was compressed, so that the same text gives the same bytes."""
        content = self.read(info.filename)
        data = self.content[slice(*self.data_range(info))]
        return next((level for level in (6, 9, 1) if _deflated(content, level) == data), 6)

    def _directory_start(self) -> int:
        end = self.content.rfind(b"PK\x05\x06")
        return _END.unpack(self.content[end : end + _END.size])[6]

    def _directory(self, start: int, position: int, entries: Mapping[int, tuple[int, bytes]]) -> bytes:
        """Returns the directory and the end of the archive with new positions and sizes."""
        directory = bytearray(self.content[start:])
        place = 0
        for _ in self.members:
            fields = _CENTRAL.unpack_from(directory, place)
            offset, sizes = entries[fields[16]]
            struct.pack_into("<I", directory, place + 42, offset)
            if sizes:
                directory[place + 16 : place + 28] = sizes
            place += _CENTRAL.size + fields[10] + fields[11] + fields[12]
        end = directory.rfind(b"PK\x05\x06")
        struct.pack_into("<I", directory, end + 16, position)
        return bytes(directory)


def read_archive(content: bytes, name: str) -> Archive:
    """Reads the directory of an archive.

    Args:
        content: Bytes of the file.
        name: Name of the file, for messages.

    Raises:
        DataError: It is not an archive, is damaged, or has more or larger members than documents have.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, struct.error, ValueError, EOFError, NotImplementedError) as error:
        raise DataError(f"{name}: not a ZIP archive, or it is damaged; save the file anew") from error
    if len(members) > MAX_MEMBERS or sum(info.file_size for info in members) > 8 * MAX_BYTES:
        raise DataError(f"{name}: it has more or larger members than documents have; the file is refused")
    names = [info.filename for info in members]
    archive = Archive(name, content, members)
    position = 0
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset < position or len(set(names)) < len(names):
            raise DataError(f"{name}: members of the archive overlap or have the same name; the file is refused")
        _, position = archive.data_range(info)
    end = content.rfind(b"PK\x05\x06")
    if position > len(content) or b"PK\x06\x07" in content[max(0, end - 20) : end]:
        raise DataError(f"{name}: the archive is damaged or larger than 4 GiB; save the file anew")
    fields = _END.unpack(content[end : end + _END.size]) if end >= 0 and end + _END.size <= len(content) else ()
    if not fields or fields[4] != len(members) or fields[5] + fields[6] != end or position > fields[6]:
        raise DataError(f"{name}: the archive is damaged or has data before it; save the file anew")
    return archive


def _deflated(content: bytes, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()
