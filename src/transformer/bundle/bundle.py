"""Model, configuration, tokenizers and provenance: what a translator is made of, to disk and back."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from torch import Tensor, nn

from transformer.bundle.weights import Unfilled, place, place_quantized, quantize, untied
from transformer.config import Config
from transformer.errors import BundleError, DataError
from transformer.kernels import Precision
from transformer.models import family
from transformer.storage.checkpoints import resolve_model
from transformer.storage.tensor_files import load_tensors
from transformer.storage.verified_folder import (
    MANIFEST,
    MANIFEST_SUM,
    FolderType,
    Manifest,
    VerifiedFolder,
    write_sealed,
)
from transformer.tokenizers.pair import TokenizerPair

CONFIG, PROVENANCE = "config.json", "provenance.json"
WEIGHTS: Final = {"float32": "model.safetensors", "int8": "model.int8.safetensors"}
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


BUNDLE: Final = FolderType("model", BundleError, BundleManifest, FORMAT)


@dataclass
class Bundle:
    """What a model folder holds.

    Attributes:
        config: of the model, which names its family.
        model: the weights in place.
        text: the tokenizers of both sides, which are one where the model has one text; None where it reads no text.
        provenance: where it comes from: recipe, scores, data report, versions.
        folder: where it was read from.
        precision: that the weights are stored in; a model stored in int8 is packed, and can only translate.
    """

    config: Config
    model: nn.Module
    text: TokenizerPair | None
    provenance: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    precision: str = "float32"

    @property
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of both sides.

        Raises:
            BundleError: the model reads no text.
        """
        if self.text is None:
            raise BundleError(f"a {self.family} model reads no text; give one that does")
        return self.text

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
    _save(folder, bundle, "float32", *untied(bundle.model))


def save_quantized(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle whose matrices are rounded to int8, each output in units of its own; packs its model in place.

    Raises:
        BundleError: the folder holds something already.
    """
    _save(folder, bundle, "int8", *quantize(bundle.model))


def _save(folder: Path, bundle: Bundle, precision: str, tensors: dict[str, Tensor], tied: dict[str, str]) -> None:
    texts = {CONFIG: _json(bundle.config.model_dump()), PROVENANCE: _json(bundle.provenance)}

    def fill(temporary: Path) -> None:
        for name, text in (texts | (bundle.text.to_files() if bundle.text else {})).items():
            (temporary / name).write_bytes(text.encode())
        safetensors.torch.save_file(tensors, temporary / WEIGHTS[precision])

    write_sealed(folder, BUNDLE, {"family": bundle.family, "precision": precision, "tied": tied}, fill)


def load_bundle(path: Path | str, *, packed_in: Precision | None = None) -> Bundle:
    """Reads a bundle, or the best model of a run folder, and checks every byte of it.

    Args:
        path: the folder.
        packed_in: precision that a model stored in int8 is packed in; None refuses such a model.

    Raises:
        BundleError: it is not a model, or incomplete, or changed since it was written; or stored in int8 where
            that is refused.
    """
    folder = resolve_model(Path(path))
    config = folder / "config.json"
    if not (folder / MANIFEST).exists() and config.is_file() and b'"model_type"' in config.read_bytes():
        raise BundleError(
            f"{folder} is a published folder; make a model of it: transformer import {folder} --out MODEL"
        )
    sealed = VerifiedFolder(folder, BUNDLE)
    files = {name: sealed.read(name) for name in sealed.manifest.files if not name.endswith(".safetensors")}
    precision = sealed.manifest.precision
    if precision not in WEIGHTS:
        raise BundleError(f"{folder} is stored in {precision!r}, which this version does not read; update transformer")
    if precision == "int8" and packed_in is None:
        raise BundleError(f"{folder} is stored in int8 and can only translate; give the float32 model it was made of")
    with ThreadPoolExecutor(1) as pool:
        sum_taken = sealed.checking(WEIGHTS[precision], pool)  # which takes as long as all the rest
        bundle = _read(sealed, files, packed_in, sum_taken)
        sum_taken.result()
    return bundle


def _read(
    sealed: VerifiedFolder[BundleManifest],
    files: dict[str, bytes],
    packed_in: Precision | None,
    sum_taken: Future[Path],
) -> Bundle:
    """The bundle; where that fails, damage of the weights is told first."""
    folder, precision = sealed.folder, sealed.manifest.precision
    weights = folder / WEIGHTS[precision]
    try:
        model_family = family(sealed.manifest.family)
        config = model_family.config.model_validate_json(files[CONFIG])
        with Unfilled():
            model = model_family.build(config)
        texts = {name: content.decode() for name, content in files.items() if name.startswith("tokenizer")}
        tokenizers = TokenizerPair.from_files(texts) if texts or model_family.reads_text else None
        provenance = dict(json.loads(files[PROVENANCE]))
        if tokenizers:
            refuse_more_tokens(tokenizers, config)
        if packed_in is None or precision == "float32":
            place(model, load_tensors(weights), sealed.manifest.tied)
        else:
            place_quantized(model, load_tensors(weights), sealed.manifest.tied, packed_in)
    except (
        AttributeError, KeyError, TypeError, ValueError, RuntimeError, BundleError, DataError,
        safetensors.SafetensorError,
    ) as error:  # fmt: skip
        sum_taken.result()
        reason = " ".join(str(error).split())[:500]
        raise BundleError(f"{folder}: {reason}; the model is incomplete or of another version") from error
    return Bundle(config, model.eval(), tokenizers, provenance, folder, precision)


def refuse_more_tokens(tokenizers: TokenizerPair, config: Config) -> None:
    """Refuses a tokenizer with tokens that the model does not know.

    Raises:
        BundleError: a side has more of them.
    """
    sizes = config.model_dump()
    for side, tokenizer in (("src", tokenizers.source), ("tgt", tokenizers.target)):
        known = sizes.get(f"{side}_vocab_size", sizes.get("vocab_size", tokenizer.vocab_size))
        if tokenizer.vocab_size > known:
            raise BundleError(f"a tokenizer of {tokenizer.vocab_size:,} tokens does not go with {known:,} of the model")


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
