"""API keys: a text file with one line per key, which holds its name and the SHA-256 hash of the key.

Keys have 256 random bits, so a fast hash without salt is safe: nobody can try out that many.
"""

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from transformer.errors import ConfigError
from transformer.storage.atomic import atomic_file

PREFIX: Final = "tf-"
LINE: Final = re.compile(r"(?P<name>[\w.@-]{1,64}) +sha256:(?P<hash>[0-9a-f]{64})")


class Keys:
    """The keys of a file, by which clients are known.

    Args:
        hashes: Hexadecimal SHA-256 hash of each key, by its name.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(hashes)

    @property
    def names(self) -> list[str]:
        """Names of the keys."""
        return list(self._hashes)

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Reads a file of keys; empty lines and lines that begin with # are skipped.

        Raises:
            ConfigError: The file cannot be read, or a line has another form.
        """
        hashes: dict[str, str] = {}
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"keys={str(path)!r} cannot be read as text; check the path and permissions") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            match = LINE.fullmatch(line.rstrip())
            if match is None or match["name"] in hashes:
                reason = "has the name of an earlier key" if match else "is not of the form `NAME sha256:HASH`"
                raise ConfigError(f"{path}, line {number} {reason}; make keys by `transformer serve --new-key NAME`")
            hashes[match["name"]] = match["hash"]
        return cls(hashes)

    def find(self, key: str) -> str | None:
        """Returns the name of a key in constant time, or None if it is unknown."""
        digest = hash_key(key)
        matches = [name for name, expected in self._hashes.items() if hmac.compare_digest(digest, expected)]
        return matches[0] if matches else None


def hash_key(key: str) -> str:
    """Returns the hexadecimal hash of a key, as it is stored."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def add_key(path: Path, name: str) -> str:
    """Makes a key and adds its hash to a file, which only its owner may read.

    Args:
        path: File of keys; it is created if it does not exist.
        name: Name of the key, e.g. of the person or program that receives it.

    Returns:
        The key, which is stored nowhere.

    Raises:
        ConfigError: The name has other characters than letters, digits and `_.@-`, or is taken.
    """
    if not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise ConfigError(f"{name[:80]!r} cannot name a key; use up to 64 letters, digits and the characters _ . @ -")
    text = ""
    if path.exists():
        if name in Keys.read(path).names:
            raise ConfigError(f"{path} has a key named {name!r}; choose another name, or remove its line")
        text = path.read_text(encoding="utf-8")
        text += "" if text.endswith("\n") or not text else "\n"
    key = PREFIX + secrets.token_urlsafe(32)
    with atomic_file(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(f"{text}{name} sha256:{hash_key(key)}\n".encode())
    return key
