import hashlib

import pytest

from transformer.data.config import DataConfig
from transformer.data.fingerprint import fingerprint_inputs
from transformer.errors import DataError


def test_every_text_is_named_by_its_key_and_summed(tmp_path):
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").write_bytes(b"eins\n")
    settings = DataConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    assert fingerprint_inputs(settings) == {
        "data.source": hashlib.sha256(b"one\n").hexdigest(),
        "data.target": hashlib.sha256(b"eins\n").hexdigest(),
    }


def test_a_missing_text_is_named(tmp_path):
    settings = DataConfig(source=str(tmp_path / "none"), target=str(tmp_path / "none"))
    with pytest.raises(DataError, match="none: No such file or directory; give a file that can be read"):
        fingerprint_inputs(settings)
