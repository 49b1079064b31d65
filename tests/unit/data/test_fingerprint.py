import hashlib
from pathlib import Path

import pytest

from transformer.data.config import DataConfig
from transformer.data.fingerprint import combined_checksum, fingerprint_inputs
from transformer.errors import DataError


def test_every_text_is_named_by_its_key_and_summed(tmp_path):
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").write_bytes(b"eins\n")
    settings = DataConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    assert fingerprint_inputs(settings) == {
        "data.source": hashlib.sha256(b"one\n").hexdigest(),
        "data.target": hashlib.sha256(b"eins\n").hexdigest(),
    }


def test_a_list_of_files_is_summed_in_its_order(tmp_path: Path) -> None:
    """Catches files that are exchanged, moved from one list to another, or joined without a new checksum."""
    names = {name: str(tmp_path / name) for name in "abc"}
    digests = {}
    for name, path in names.items():
        Path(path).write_bytes(f"{name}\n".encode())
        digests[name] = hashlib.sha256(f"{name}\n".encode()).hexdigest()
    for order in ("b", "ab", "ba", "cab"):
        expected = hashlib.sha256("\n".join(digests[name] for name in order).encode()).hexdigest()
        assert combined_checksum(tuple(names[name] for name in order)) == expected
    assert combined_checksum(names["a"]) == digests["a"]


def test_a_missing_text_is_named(tmp_path):
    settings = DataConfig(source=str(tmp_path / "none"), target=str(tmp_path / "none.de"))
    with pytest.raises(DataError, match="none: No such file or directory; give a file that can be read"):
        fingerprint_inputs(settings)
