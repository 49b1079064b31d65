"""Facts of a model folder, read from its small files."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transformer.bundle.chat import CHAT, CONFIG_FILE, TEMPLATE_FILE, TOKENIZER_FILE, chat_entries
from transformer.bundle.hub_cache import find_model
from transformer.bundle.kind import model_kind
from transformer.bundle.languages import languages_of_provenance, pairs_of_provenance, published_languages
from transformer.errors import BundleError
from transformer.storage.checkpoint_paths import resolve_model
from transformer.storage.verified_folder import MANIFEST

CONTEXT_KEYS: Final = ("seq_len", "n_positions", "max_position_embeddings")
"""Keys of the number of positions in configurations of bundles and of published language models."""


def describe(path: str) -> dict[str, Any]:
    """Returns the fields of `ModelInfo`, except the name, and the fingerprint of the folder.

    Args:
        path: Folder of a model or a run, or the name of an installed model.

    Raises:
        BundleError: The path does not lead to a model.
    """
    folder = resolve_model(find_model(Path(path))).resolve()
    kind = model_kind(Path(path))
    if kind is None:
        raise BundleError(f"{path} is not a model; give a bundle, a run folder, or the name of an installed model")
    main_file = folder / MANIFEST if (folder / MANIFEST).exists() else folder / "config.json"
    config, manifest = _read_json(folder / "config.json"), _read_json(folder / MANIFEST)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    source, target = _languages(folder) if kind == "encoder-decoder" else (None, None)
    directions = _directions(folder) if kind == "encoder-decoder" else ()
    family = manifest.get("family") or config.get("model_type")
    return {
        "kind": kind,
        "source_language": source or "",
        "target_language": target or "",
        "directions": directions,
        "created": int(main_file.stat().st_mtime),
        "size": size,
        "description": f"{family}, {size / 1e6:.1f} MB",
        "has_labels": kind == "encoder" and bool(config.get("labels") or config.get("id2label")),
        "context": _context(config) if kind == "language model" else 0,
        "chat": _chat(folder) if kind == "language model" else {},
        "fingerprint": fingerprint(folder),
    }


def fingerprint(folder: Path) -> str:
    """Returns a digest that changes whenever the files of a model are replaced or written again.

    It covers the path, the names, sizes and times of all files, and the content of the manifest, which has the
    checksums of all files.
    """
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    facts = [(str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = hashlib.sha256(json.dumps([str(folder), facts]).encode())
    if (folder / MANIFEST).exists():
        digest.update((folder / MANIFEST).read_bytes())
    return digest.hexdigest()


def _context(config: Mapping[str, Any]) -> int:
    return next((int(config[key]) for key in CONTEXT_KEYS if key in config), 0)


def _languages(folder: Path) -> tuple[str | None, str | None]:
    if (folder / MANIFEST).exists():
        return languages_of_provenance(_read_json(folder / "provenance.json"))
    tokenizer = folder / CONFIG_FILE
    return published_languages({CONFIG_FILE: tokenizer.read_bytes()} if tokenizer.exists() else {})


def _directions(folder: Path) -> tuple[tuple[str, str], ...]:
    return pairs_of_provenance(_read_json(folder / "provenance.json")) if (folder / MANIFEST).exists() else ()


def _chat(folder: Path) -> dict[str, Any]:
    """Returns the chat template of a language model, see `transformer.bundle.chat`; empty if it has none."""
    if (folder / MANIFEST).exists():
        return _read_json(folder / "provenance.json").get(CHAT, {})
    paths = [folder / name for name in (TEMPLATE_FILE, CONFIG_FILE, TOKENIZER_FILE)]
    return chat_entries({path.name: path.read_bytes() for path in paths if path.is_file()}).get(CHAT, {})


def _read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file; an empty one if there is none, since loading reports damaged files."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
