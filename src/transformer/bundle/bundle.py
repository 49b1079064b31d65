"""Model, configuration, tokenizers and provenance: what a translator is made of, to disk and back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from transformer.bundle.folder import read_folder, write_folder
from transformer.errors import BundleError, DataError
from transformer.models import family
from transformer.settings import Settings
from transformer.text.pair import TokenizerPair

CONFIG, WEIGHTS, PROVENANCE = "config.json", "model.safetensors", "provenance.json"
POINTER = "run.json"


@dataclass
class Bundle:
    """What a model folder holds.

    Attributes:
        config: of the model, which names its family.
        model: the weights in place.
        tokenizers: of both sides.
        provenance: where it comes from: recipe, scores, data report, versions.
        folder: where it was read from.
    """

    config: Settings
    model: nn.Module
    tokenizers: TokenizerPair
    provenance: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def family(self) -> str:
        """The name of the model's family."""
        return str(self.config.model_dump()["family"])


def save_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle; a parameter that stands in several places is stored once and named in the manifest.

    Raises:
        BundleError: the folder holds something already.
    """
    tensors, tied = _untie(bundle.model)
    files = {
        CONFIG: _json(bundle.config.model_dump()),
        WEIGHTS: safetensors.torch.save(tensors),
        PROVENANCE: _json(bundle.provenance),
    } | {name: content.encode() for name, content in bundle.tokenizers.to_files().items()}
    write_folder(folder, files, {"family": bundle.family, "precision": "float32", "tied": tied})


def load_bundle(path: Path) -> Bundle:
    """Reads a bundle, or the best model of a run folder, and checks every byte of it.

    Raises:
        BundleError: it is not a model, or incomplete, or changed since it was written.
    """
    folder = resolve_model(path)
    manifest, files = read_folder(folder)
    try:
        model_family = family(manifest.family)
        config = model_family.config.model_validate_json(files[CONFIG])
        model = model_family.build(config)
        tensors = safetensors.torch.load(files[WEIGHTS])
        texts = {name: content.decode() for name, content in files.items() if name.startswith("tokenizer")}
        tokenizers = TokenizerPair.from_files(texts)
        provenance = dict(json.loads(files[PROVENANCE]))
        model.load_state_dict(tensors | {alias: tensors[name] for alias, name in manifest.tied.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, DataError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())[:500]
        raise BundleError(f"{folder}: {reason}; the model is incomplete or of another version") from error
    return Bundle(config, model.eval(), tokenizers, provenance, folder)


def resolve_model(path: Path) -> Path:
    """The bundle itself, or the best one of a run folder.

    Raises:
        BundleError: the path does not exist, or its run has no model yet.
    """
    if not path.exists():
        raise BundleError(f"{path} does not exist; give a bundle or a run folder")
    pointer = path / POINTER
    if not pointer.is_file():
        return path
    try:
        progress = json.loads(pointer.read_text(encoding="utf-8"))
        step = int(progress["step"] if progress["best_step"] is None else progress["best_step"])
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{pointer}: damaged ({error}); name the model folder in {path / 'checkpoints'}") from error
    return path / "checkpoints" / f"step-{step:08d}" / "model"


def _untie(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The distinct tensors by name, and alias -> name for the others."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in first:
            tied[name] = first[id(tensor)]
        else:
            first[id(tensor)] = name
            tensors[name] = tensor.detach().contiguous()
    return tensors, tied


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True).encode()
