"""Reads and writes models in the Hugging Face format: config.json, safetensors and tokenizer files."""

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torch import Tensor

from transformer.bundle import Bundle
from transformer.bundle.bundle import check_vocabulary_sizes
from transformer.bundle.chat import chat_entries
from transformer.bundle.hub_cache import repository_name
from transformer.bundle.languages import language_entries, published_languages
from transformer.bundle.other_formats import check_is_folder, describe_other_format
from transformer.bundle.weights import SkipInit
from transformer.config import JsonObject, describe_error
from transformer.errors import BundleError, ConfigError, DataError, note
from transformer.models import Family, family, family_names
from transformer.models.huggingface.config_audit import AuditedConfig
from transformer.models.huggingface.generation_config import GENERATION, read_repetition, write_repetition
from transformer.models.huggingface.key_mapping import CONFIG, OTHER_PROGRAM, unwrap
from transformer.models.size import check_size_of_weights
from transformer.storage.atomic import atomic_folder
from transformer.storage.disk_space import check_space
from transformer.storage.tensor_files import load_tensors, save_tensors, tensor_bytes
from transformer.storage.verified_folder import MANIFEST

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SMALL_FILES: Final = frozenset({".json", ".spm", ".txt", ".model", ".jinja"})
MAX_BYTES: Final = 1 << 28
"""Maximum size of a file other than the weights."""
COMMANDS: Final = {
    "encoder-decoder": ("translate", "evaluate", "score"), "language model": ("generate", "perplexity"),
    "encoder": ("classify", "embed", "fill"), "image encoder": ("classify",),
}  # fmt: skip
"""Commands that use a published model as it is, by the kind of the model."""
MAX_LISTED: Final = 3
"""Maximum number of tensors listed in a message."""


def read_published(folder: Path, unpickle_in: Path | None = None) -> Bundle:
    """Reads a published model as a bundle, in float32.

    Settings that change nothing here are named in a note.

    Args:
        folder: Folder with config.json, model.safetensors or its shards, and the tokenizer's files.
        unpickle_in: Folder for temporary files, if weights that are only pickled are to be read too; they are converted
            to safetensors in a process of its own.

    Raises:
        BundleError: The folder lacks a file, has only pickled weights or those of another program, or contains an
            unsupported model: one of another type, with other parameters, or with an unknown setting that changes the
            computation.
    """
    if (folder / MANIFEST).is_file():
        raise BundleError(f"{folder} is not a published model, but one of this program; commands take it as it is")
    files = _small_files(folder)
    if CONFIG not in files:
        raise BundleError(
            describe_other_format(folder) or f"{folder} has no {CONFIG}; give the folder of a published model"
        )
    model_family: Family | None = None
    try:
        content = _read_config(folder, files[CONFIG], unpickles=unpickle_in is not None)
        model_family = family_of(infer_model_type(content))
        bundle, unused = _read_model(folder, model_family, content, files, unpickle_in)
    except BundleError as error:
        reason = str(error).replace(f"{folder} has", "it has", 1).replace(f"{folder}{os.sep}", "", 1)
        raise BundleError(f"{_blocked_commands(model_family)} can read {folder}: {reason}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as error:
        raise BundleError(
            f"{_blocked_commands(model_family)} can read {folder}: {describe_error(error)}; this version does not read "
            "such a model"
        ) from error
    if unused:
        note(f"{folder / CONFIG} has settings that nothing here computes with: {', '.join(unused)}")
    return bundle


def check_architecture(folder: Path) -> None:
    """Checks by config.json alone that a published model is of a supported type.

    Raises:
        BundleError: The file is damaged, or no family supports the model.
    """
    try:
        family_of(infer_model_type(json.loads((folder / CONFIG).read_bytes())))
    except (AttributeError, TypeError, ValueError) as error:
        raise BundleError(f"{CONFIG} is not a JSON object ({describe_error(error)}); give another model") from error


def _read_config(folder: Path, raw: bytes, *, unpickles: bool) -> JsonObject:
    """Parses config.json, and checks that the weights beside it are not those of another program.

    Raises:
        BundleError: The content is not an object, or the weights are in another format, or pickled unless `unpickles`.
    """
    content = json.loads(raw)
    if not isinstance(content, dict):
        raise BundleError(f"{folder / CONFIG} is not a JSON object; copy it again")
    has_weights = any((folder / name).is_file() for name in (WEIGHTS, INDEX, *(PICKLED if unpickles else ())))
    if not has_weights and (other := describe_other_format(folder)) is not None:
        raise BundleError(other)
    return content


def _read_model(
    folder: Path, model_family: Family, content: JsonObject, files: Mapping[str, bytes], unpickle_in: Path | None
) -> tuple[Bundle, list[str]]:
    """Reads the model of a family, and returns with it the names of the settings that were not used."""
    published, weights = AuditedConfig(content), model_family.weights()
    tensors = unwrap(read_tensors(folder, unpickle_in))
    config = weights.read_config(model_family.config, published, files, tensors.keys())
    check_size_of_weights(config, sum(tensor.nbytes for tensor in tensors.values()))
    tokenizers = weights.read_tokenizers(config, files) if model_family.reads_text else None
    if tokenizers:
        check_vocabulary_sizes(tokenizers, config)
    unused = published.check_all_read()
    state = weights.read_weights(config, tensors)
    with SkipInit():
        model = model_family.build(config)
    with _report_shape_mismatches(lambda: weights.write_weights(config, model.state_dict()), tensors):
        model.load_state_dict(state)
    origin = {"folder": repository_name(folder), "model_type": infer_model_type(content)}
    sizes = config.model_dump()
    longest = {"max_source_tokens": sizes["src_seq_len"]} if "src_seq_len" in sizes else {}
    languages = language_entries(*published_languages(files)) if "tgt_seq_len" in sizes else {}
    chat = chat_entries(files) if model_family.kind == "language model" else {}
    writes = model_family.kind in ("encoder-decoder", "language model")
    repetition = read_repetition(content, files) if writes else {}
    generation = {"generation": repetition} if repetition else {}
    provenance = {"imported": origin, **longest, **languages, **chat, **generation}
    return Bundle(config, model.eval(), tokenizers, provenance), unused


def _blocked_commands(model_family: Family | None) -> str:
    """Names the commands that would use a model of a family; all commands if the family is not known."""
    if model_family is None:
        return "no command"
    return f"none of {', '.join([*COMMANDS[model_family.kind], 'info'])} and import"


@contextmanager
def _report_shape_mismatches(
    expected: Callable[[], dict[str, Tensor]], tensors: Mapping[str, Tensor]
) -> Generator[None]:
    """Reports tensors whose shapes differ from the configuration, by their published names.

    Raises:
        DataError: A shape differs.
    """
    try:
        yield
    except RuntimeError:
        sizes = {name: tuple(tensor.shape) for name, tensor in expected().items()}
        wrong = [
            f"{name} is {tuple(tensor.shape)}, by {CONFIG} {by_settings}"
            for name, tensor in tensors.items()
            for whole, by_settings in sizes.items()
            if f".{whole}".endswith(f".{name}") and by_settings != tuple(tensor.shape)
        ]
        if wrong:
            raise DataError("; ".join(wrong[:MAX_LISTED])) from None
        raise


def write_published(bundle: Bundle, folder: Path) -> None:
    """Writes a bundle in the Hugging Face format, which `read_published` and `transformers` read.

    Raises:
        BundleError: The format does not support the model, or the folder is not empty.
        OutputError: The folder cannot be written, or the model does not fit on its disk; nothing remains of it.
    """
    model_family = family(bundle.family)
    if folder.exists() and any(folder.iterdir()):
        raise BundleError(f"{folder} is not empty; choose another folder, or remove it first")
    weights = model_family.weights()
    files: dict[str, bytes] = weights.write_tokenizers(bundle.config, bundle.tokenizers) if bundle.text else {}
    described = {CONFIG: weights.write_config(bundle.config), **weights.write_files(bundle.config)}
    if isinstance(content := described.get(GENERATION), dict):
        content |= write_repetition(bundle.provenance.get("generation", {}))
    files |= {name: json.dumps(content, indent=2, ensure_ascii=False).encode() for name, content in described.items()}
    tensors = weights.write_weights(bundle.config, bundle.model.state_dict())
    check_space(folder, tensor_bytes(tensors), "the model")
    with atomic_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(content)
        save_tensors(temporary / WEIGHTS, tensors, {"format": "pt"})
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)  # the library lets only the owner read it


def infer_model_type(config: JsonObject) -> str:
    """Returns the `model_type` of a published configuration, if it is missing that of the architecture.

    Raises:
        BundleError: Both are missing, or no family supports the architecture.
    """
    if config.get("model_type") is not None:
        return str(config["model_type"])
    formats = [family(name).weights() for name in family_names()]
    by_architecture = {name: published.model_types[0] for published in formats for name in published.architectures}
    architectures = [str(name) for name in config.get("architectures") or ()]
    if types := {by_architecture[name] for name in architectures if name in by_architecture}:
        return types.pop()
    if architectures:
        raise BundleError(
            f"{CONFIG} has no model_type, and architectures={architectures[0]!r} is not known; only "
            f"{', '.join(by_architecture)} are; {OTHER_PROGRAM}"
        )
    n_settings = {
        published.model_types[0]: len({hf_name for hf_name, _ in published.settings.values()} & config.keys())
        for published in formats
        if published.model_types
    }
    likely = max(n_settings, key=lambda name: n_settings[name])
    advice = f'"model_type": "{likely}" to it if the model is one, as its settings suggest'
    if not n_settings[likely]:
        advice = f"a model_type to it, one of {', '.join(n_settings)}"
    raise BundleError(f"{CONFIG} has neither model_type nor architectures; add {advice}")


def family_of(model_type: str) -> Family:
    """Returns the family that supports a published `model_type`.

    Raises:
        BundleError: No family supports it.
    """
    known: list[str] = []
    for name in family_names():
        candidate = family(name)
        types = candidate.published_types()
        if model_type in types:
            return candidate
        known += types
    raise BundleError(f"{CONFIG}: model_type={model_type!r} is not known; only {', '.join(known)} are; {OTHER_PROGRAM}")


def read_tensors(folder: Path, unpickle_in: Path | None = None) -> dict[str, Tensor]:
    """Reads the weights of a folder, from one file or from shards.

    Args:
        folder: Folder of the model.
        unpickle_in: Folder for temporary files, if pickled weights are read in the absence of others.

    Raises:
        BundleError: The weights or a shard are missing, or are not those of a model.
    """
    if files := _weight_files(folder, WEIGHTS, INDEX):
        return _read_files(files)
    files = _weight_files(folder, *PICKLED) if unpickle_in else []
    if not files:
        raise BundleError(f"{folder} has no {WEIGHTS}; copy the whole folder")
    from transformer.bundle.pickled_weights import convert_pickled

    with TemporaryDirectory(dir=unpickle_in, prefix=".unpickled-") as temporary:
        converted = convert_pickled(files, Path(temporary))
        note(f"{files[0]} is pickled; it was read in a process of its own, as tensors alone")
        return _read_files([converted])


def _weight_files(folder: Path, name: str, index: str) -> list[Path]:
    """Returns the file of the weights, or those of the shards in an index; nothing if neither is there.

    Raises:
        BundleError: A shard is missing, or lies elsewhere.
    """
    if (folder / name).is_file():
        return [folder / name]
    if not (folder / index).is_file():
        return []
    names = sorted(set(json.loads((folder / index).read_bytes())["weight_map"].values()))
    for shard in names:
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise BundleError(f"{folder / shard}, a part of the weights, is missing; copy the whole folder")
    return [folder / shard for shard in names]


def _read_files(files: Sequence[Path]) -> dict[str, Tensor]:
    """Reads safetensors files whose tensors have different names and finite values."""
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            read = load_tensors(file)
        except (OSError, DataError) as error:
            raise BundleError(f"{file} is not a safetensors file: {describe_error(error)}; copy it again") from error
        if twice := sorted(tensors.keys() & read.keys()):
            raise BundleError(f"{file} has {twice[0]}, which another part has too; copy the whole folder")
        if broken := [key for key, tensor in read.items() if not tensor.isfinite().all()]:
            raise BundleError(f"{file}: {broken[0]} holds numbers that are not finite; copy it again")
        tensors |= read
    return tensors


def _small_files(folder: Path) -> dict[str, bytes]:
    """Reads all files other than the weights, by name."""
    check_is_folder(folder)
    if not folder.is_dir():
        raise BundleError(f"{folder} is not a folder; give that of a published model")
    contents: dict[str, bytes] = {}
    for path in sorted([*folder.iterdir(), *folder.glob("*/config.json")]):
        if path.suffix in SMALL_FILES and path.is_file() and path.stat().st_size <= MAX_BYTES:
            contents[path.relative_to(folder).as_posix()] = path.read_bytes()
    return contents
