"""Reads and writes models as Hugging Face folders hold them: config.json, safetensors, the files of a tokenizer."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from transformer.bundle import Bundle
from transformer.bundle.bundle import refuse_more_tokens
from transformer.bundle.weights import Unfilled
from transformer.errors import BundleError, ConfigError, DataError
from transformer.models import Family, family, family_names
from transformer.models.huggingface.config_audit import AuditedConfig
from transformer.storage.tensor_files import load_tensors

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SMALL_FILES: Final = frozenset({".json", ".spm", ".txt", ".model"})
MOST_BYTES: Final = 1 << 28
"""Of a file that is no weights."""
MOST_NAMES: Final = 3
"""Of tensors in a message."""


def read_published(folder: Path) -> Bundle:
    """A published model as a bundle, in float32.

    Args:
        folder: with config.json, model.safetensors or its shards, and the tokenizer's files.

    Raises:
        BundleError: the folder lacks something, holds pickled weights alone, or a model that is not known: of another
            type, with other parameters, or with a setting that is not known. Nothing is passed over.
    """
    files = _small_files(folder)
    if CONFIG not in files:
        raise BundleError(f"{folder} has no {CONFIG}; give the folder of a published model")
    try:
        content: Any = json.loads(files[CONFIG])
        if not isinstance(content, dict):
            raise BundleError(f"{folder / CONFIG} is no object of settings; copy it again")
        published = AuditedConfig(cast("dict[str, Any]", content))
        kind = family_of(str(published.get("model_type")))
        weights = kind.weights()
        tensors = read_tensors(folder, *content.get("architectures") or ())
        config = weights.read_config(kind.config, published, files, tensors.keys())
        tokenizers = weights.read_tokenizers(config, files) if kind.reads_text else None
        if tokenizers:
            refuse_more_tokens(tokenizers, config)
        published.refuse_unread()
        state = weights.read_weights(config, tensors)
        with Unfilled():
            model = kind.build(config)
        with _published_names(lambda: weights.write_weights(config, model.state_dict()), tensors):
            model.load_state_dict(state)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as error:
        reason = " ".join(str(error).split())[:500]
        raise BundleError(f"{folder}: {reason}; this version does not read such a model") from error
    origin = {"folder": folder.name, "model_type": published["model_type"]}
    sizes = config.model_dump()
    longest = {"max_source_tokens": sizes["src_seq_len"]} if "src_seq_len" in sizes else {}
    return Bundle(config, model.eval(), tokenizers, {"imported": origin, **longest})


@contextmanager
def _published_names(expected: Callable[[], dict[str, Tensor]], found: Mapping[str, Tensor]) -> Generator[None]:
    """Tells of tensors of other sizes than the settings say by their published names, which ours are not.

    Raises:
        DataError: there are some.
    """
    try:
        yield
    except RuntimeError:
        sizes = {name: tuple(tensor.shape) for name, tensor in expected().items()}
        wrong = [
            f"{name} is {tuple(tensor.shape)}, by {CONFIG} {by_settings}"
            for name, tensor in found.items()
            for whole, by_settings in sizes.items()
            if f".{whole}".endswith(f".{name}") and by_settings != tuple(tensor.shape)
        ]
        if wrong:
            raise DataError("; ".join(wrong[:MOST_NAMES])) from None
        raise


def write_published(bundle: Bundle, folder: Path) -> None:
    """Writes a bundle as a published folder, which `read_published` and `transformers` read.

    Raises:
        BundleError: the published format has no such model, or the folder holds something already.
    """
    kind = family(bundle.family)
    if folder.exists() and any(folder.iterdir()):
        raise BundleError(f"{folder} is not empty; choose another folder, or remove it first")
    weights = kind.weights()
    files: dict[str, bytes] = weights.write_tokenizers(bundle.config, bundle.tokenizers) if bundle.text else {}
    described = {CONFIG: weights.write_config(bundle.config), **weights.write_files(bundle.config)}
    files |= {name: json.dumps(content, indent=2, ensure_ascii=False).encode() for name, content in described.items()}
    tensors = weights.write_weights(bundle.config, bundle.model.state_dict())
    files[WEIGHTS] = safetensors.torch.save(tensors, {"format": "pt"})
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def family_of(model_type: str) -> Family:
    """The family that reads a published type of model.

    Raises:
        BundleError: there is none.
    """
    known: list[str] = []
    for name in family_names():
        found = family(name)
        types = found.published_types()
        if model_type in types:
            return found
        known += types
    raise BundleError(f"model_type={model_type!r} is not known; only {', '.join(known)} are")


def read_tensors(folder: Path, architecture: str = "the model's class", *_: str) -> dict[str, Tensor]:
    """The weights of a folder, in one file or in shards.

    Args:
        folder: of the model.
        architecture: the class of transformers that has all of its parameters, for messages.

    Raises:
        BundleError: there are none, or a shard is missing; or only pickled ones, which can run code when they are read.
    """
    names = [WEIGHTS]
    if not (folder / WEIGHTS).is_file():
        if (folder / INDEX).is_file():
            names = sorted(set(json.loads((folder / INDEX).read_bytes())["weight_map"].values()))
        elif pickled := sorted(path.name for path in folder.glob("*.bin")):
            raise BundleError(
                f"{folder} has pickled weights alone ({pickled[0]}), which can run code; convert them where you trust "
                f"them: {architecture}.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers does"
            )
        else:
            raise BundleError(f"{folder} has no {WEIGHTS}; copy the whole folder")
    tensors: dict[str, Tensor] = {}
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise BundleError(f"{folder / name}, a part of the weights, is missing; copy the whole folder")
        try:
            read = load_tensors(folder / name)
        except (OSError, SafetensorError) as error:
            raise BundleError(f"{folder / name} is no file of safetensors ({error}); copy it again") from error
        if twice := sorted(tensors.keys() & read.keys()):
            raise BundleError(f"{folder / name} has {twice[0]}, which another part has too; copy the whole folder")
        if broken := [key for key, tensor in read.items() if not tensor.isfinite().all()]:
            raise BundleError(f"{folder / name}: {broken[0]} holds numbers that are not finite; copy it again")
        tensors |= read
    return tensors


def _small_files(folder: Path) -> dict[str, bytes]:
    """The contents of all that is not weights, by name."""
    if not folder.is_dir():
        raise BundleError(f"{folder} is no folder; give that of a published model")
    found: dict[str, bytes] = {}
    for path in sorted([*folder.iterdir(), *folder.glob("*/config.json")]):
        if path.suffix in SMALL_FILES and path.is_file() and path.stat().st_size <= MOST_BYTES:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found
