"""Mutations of what commands read: seeded, and valid enough to get past the first check."""

import base64
import copy
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[random.Random, Path], None]

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 255, 1 << 31, 1 << 63, 10**30, -(10**30), 0.5, -0.5, 1e308, -1e308, 1e-308, "", "x",
    "\x00", "\u2028", "\u202e", "../x", "a" * 5000, [], {}, [[]], [None], ["a", "b"], [1, 2, 3], {"a": {}},
)  # fmt: skip
CHUNKS = (
    b"\x00", b"\xff", b"\r", b"\r\n", b"\n\n\n", b"\t", b'"', b"'", b"{", b"}", b"[" * 300, b"<", b"&#0;",
    b"\xef\xbb\xbf",
    b"\xff\xfe", "\u2028\u0085\u200b\u00ad".encode(), b"\xed\xa0\x80", b"a" * 70_000, b"-1", b"1e999", b"9" * 50, b"%s",
)  # fmt: skip


def mutate_tree(draw: random.Random, tree: Any) -> Any:
    """Returns a JSON value with a value changed within its type, or with one to three values of any type."""
    tree = copy.deepcopy(tree)
    is_gentle = draw.random() < 0.6
    for _ in range(1 if is_gentle else draw.randint(1, 3)):
        places = [(holder, key) for holder in _holders(tree) for key in _keys(draw, holder)]
        if not places:
            return draw.choice(VALUES)
        holder, key = draw.choice(places)
        if is_gentle:
            holder[key] = _changed(draw, holder[key])
        else:
            _damage(draw, holder, key, places)
    return tree


def _changed(draw: random.Random, value: Any) -> Any:
    """Returns another value of the same type; text that holds JSON or base64 is changed inside."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((0, 1, value + 1, value - 1, 2 * value, 1000 * value, -value, 10**9 + value, value // 2))
    if isinstance(value, float):
        return draw.choice((0.0, 1.0, -value, 2 * value, 1e9 * value, 1e-300, value / 2))
    if isinstance(value, str):
        if value.startswith("{"):
            return json.dumps(mutate_tree(draw, json.loads(value)))
        if len(value) > 500:
            return base64.b64encode(mutate_bytes(draw, base64.b64decode(value))).decode()
        strings = [choice for choice in VALUES if isinstance(choice, str)]
        return draw.choice((value[:-1], value + value, value.swapcase(), *strings))
    if isinstance(value, list):
        return draw.choice(([], value[:-1], value[1:], value + value, value[::-1]))
    return {name: value[name] for name in list(value)[1:]} if isinstance(value, dict) else draw.choice(VALUES)


def _damage(draw: random.Random, holder: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    """Removes, renames or replaces a value of an object or a list, perhaps by one from another place."""
    action = draw.randrange(4)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif action == 2:
        other, place = draw.choice(places)
        if place in other if isinstance(other, dict) else place < len(other):
            holder[key] = copy.deepcopy(other[place])
    else:
        holder[key] = copy.deepcopy(draw.choice(VALUES))


def _holders(tree: Any) -> list[Any]:
    """Returns all objects and lists of a JSON value."""
    if not isinstance(tree, dict | list):
        return []
    values = tree.values() if isinstance(tree, dict) else tree
    return [tree, *(holder for value in values for holder in _holders(value))]


def _keys(draw: random.Random, holder: Any) -> list[Any]:
    """Returns keys of a holder, at most three, so that a vocabulary does not outweigh all else."""
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    return keys if len(keys) <= 20 else draw.sample(keys, 3)


def mutate_bytes(draw: random.Random, content: bytes) -> bytes:
    """Returns bytes with one to three parts flipped, removed, doubled or inserted."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(content) + 1)
        end = min(len(content), start + draw.choice((1, 2, 8, 64, 1000)))
        action = draw.randrange(5)
        if action == 0:
            content = content[:start] + content[end:]
        elif action == 1:
            content = content[:end] + content[start:]
        elif action == 2 and start < len(content):
            content = content[:start] + bytes([content[start] ^ 1 << draw.randrange(8)]) + content[start + 1 :]
        elif action == 3 and draw.random() < 0.3:
            content = content[:start]
        else:
            content = content[:start] + draw.choice(CHUNKS) + content[start:]
    return content


def mutate_json(draw: random.Random, path: Path) -> None:
    """Mutates a JSON file, mostly its values, sometimes its bytes."""
    if draw.random() < 0.1:
        path.write_bytes(mutate_bytes(draw, path.read_bytes()))
    else:
        path.write_text(json.dumps(mutate_tree(draw, json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")


def mutate_text(draw: random.Random, path: Path) -> None:
    """Mutates a file as bytes."""
    path.write_bytes(mutate_bytes(draw, path.read_bytes()))


def mutate_lines(draw: random.Random, path: Path) -> None:
    """Mutates JSON values of a file with one on each line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    index = draw.randrange(len(lines))
    lines[index] = json.dumps(mutate_tree(draw, json.loads(lines[index])))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def mutate_safetensors(draw: random.Random, path: Path) -> None:
    """Mutates the header of a safetensors file, or the file itself."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    if draw.random() < 0.5:
        start = draw.choice((0, 8 + length))
        path.write_bytes(raw[:start] + mutate_bytes(draw, raw[start:]))
        return
    header = json.dumps(mutate_tree(draw, json.loads(raw[8 : 8 + length]))).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + length :])


CHANGES: dict[str, Change] = {
    ".json": mutate_json, ".jsonl": mutate_lines, ".safetensors": mutate_safetensors, ".toml": mutate_text
}  # fmt: skip


WEIGHTS = {"manifest.json": 0.5}
"""Weights of files in the choice of the one that is mutated; those of other JSON files are 3, of all others 1."""


def mutate_file(draw: random.Random, path: Path) -> None:
    """Mutates a file as its suffix asks for."""
    CHANGES.get(path.suffix, mutate_text)(draw, path)


def mutate_sealed(draw: random.Random, folder: Path) -> None:
    """Mutates a file of a verified folder and writes its sums anew, as an attacker would; or mutates the manifest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.sha256")
    (path,) = draw.choices(files, [WEIGHTS.get(path.name, 3 if path.suffix == ".json" else 1) for path in files])
    mutate_file(draw, path)
    seal(folder, path)


def seal(folder: Path, changed: Path) -> None:
    """Makes the sums of a verified folder those of its files."""
    manifest = folder / "manifest.json"
    if changed != manifest:
        content = json.loads(manifest.read_bytes())
        raw = changed.read_bytes()
        name = changed.relative_to(folder).as_posix()
        content["files"][name] = {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw)}
        manifest.write_text(json.dumps(content))
    sum_file = folder / "manifest.sha256"
    sum_file.write_text(hashlib.sha256(manifest.read_bytes()).hexdigest() + "\n", encoding="ascii")


def copied(source: Path, target: Path) -> Path:
    """Copies a file or a folder and returns the copy."""
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))
