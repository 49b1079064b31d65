"""Model, configuration, tokenizers and provenance: what a translator is made of, to disk and back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from torch import Tensor, nn

from transformer.errors import BundleError, DataError
from transformer.models import family
from transformer.settings import Settings
from transformer.storage.checkpoints import resolve_model
from transformer.storage.sealed import MANIFEST_SUM, Kind, Manifest, Sealed, write_sealed
from transformer.storage.tensors import load_tensors
from transformer.text.pair import TokenizerPair

CONFIG, WEIGHTS, PROVENANCE = "config.json", "model.safetensors", "provenance.json"
FORMAT: Final = 1


class BundleManifest(Manifest):
    """What a model folder holds.

    Attributes:
        family: of the model.
        precision: of the stored weights.
        tied: parameter that stands in a second place -> name under which it is stored.
    """

    family: str
    precision: str
    tied: dict[str, str]


BUNDLE: Final = Kind("model", BundleError, BundleManifest, FORMAT)


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

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of the manifest, and so of everything in the folder; None for a bundle that was not read."""
        return None if self.folder is None else (self.folder / MANIFEST_SUM).read_text(encoding="ascii").strip()


def save_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle; a parameter that stands in several places is stored once and named in the manifest.

    Raises:
        BundleError: the folder holds something already.
    """
    tensors, tied = _untie(bundle.model)
    texts = {CONFIG: _json(bundle.config.model_dump()), PROVENANCE: _json(bundle.provenance)}

    def fill(temporary: Path) -> None:
        for name, text in (texts | bundle.tokenizers.to_files()).items():
            (temporary / name).write_bytes(text.encode())
        safetensors.torch.save_file(tensors, temporary / WEIGHTS)

    write_sealed(folder, BUNDLE, {"family": bundle.family, "precision": "float32", "tied": tied}, fill)


def load_bundle(path: Path) -> Bundle:
    """Reads a bundle, or the best model of a run folder, and checks every byte of it.

    Raises:
        BundleError: it is not a model, or incomplete, or changed since it was written.
    """
    folder = resolve_model(path)
    sealed = Sealed(folder, BUNDLE)
    files = {name: sealed.read(name) for name in sealed.manifest.files if not name.endswith(".safetensors")}
    weights = sealed.checked(WEIGHTS)
    try:
        model_family = family(sealed.manifest.family)
        config = model_family.config.model_validate_json(files[CONFIG])
        model = model_family.build(config)
        texts = {name: content.decode() for name, content in files.items() if name.startswith("tokenizer")}
        tokenizers = TokenizerPair.from_files(texts)
        provenance = dict(json.loads(files[PROVENANCE]))
        tensors = load_tensors(weights)
        model.load_state_dict(tensors | {alias: tensors[name] for alias, name in sealed.manifest.tied.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, DataError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())[:500]
        raise BundleError(f"{folder}: {reason}; the model is incomplete or of another version") from error
    return Bundle(config, model.eval(), tokenizers, provenance, folder)


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


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
