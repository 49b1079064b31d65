"""Saving and loading of bundles: a model with its configuration, tokenizers and provenance."""

import json
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from transformer.bundle.calibration import read_calibration
from transformer.bundle.hub_cache import find_model
from transformer.bundle.other_formats import check_is_folder, describe_other_format
from transformer.bundle.provenance import Provenance
from transformer.bundle.weights import (
    SkipInit,
    load_dequantized,
    load_parameters,
    load_quantized,
    quantize_weights,
    tensors_and_ties,
)
from transformer.config import describe_error
from transformer.errors import BundleError, TransformerError
from transformer.kernels import Precision
from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.models.size import check_size_of_weights
from transformer.storage.checkpoint_paths import resolve_model
from transformer.storage.disk_space import check_space
from transformer.storage.tensor_files import load_tensors, save_tensors, tensor_bytes
from transformer.storage.verified_folder import (
    MANIFEST,
    MANIFEST_SUM,
    FolderType,
    Manifest,
    VerifiedFolder,
    write_verified_folder,
)
from transformer.tokenizers.pair import TokenizerPair

CONFIG, PROVENANCE = "config.json", "provenance.json"
WEIGHTS: Final = {"float32": "model.safetensors", "int8": "model.int8.safetensors"}
FORMAT: Final = 1


class BundleManifest(Manifest):
    """The manifest of a model folder.

    Attributes:
        family: Family of the model.
        precision: Precision of the stored weights.
        tied: Name under which a tied parameter is stored, by its other names.
    """

    family: str
    precision: str
    tied: dict[str, str]


BUNDLE: Final = FolderType("model", BundleError, BundleManifest, FORMAT)


@dataclass
class Bundle:
    """A model together with everything needed to use it.

    Attributes:
        config: Configuration of the model, which names its family.
        model: The model with its weights.
        text: Tokenizers of both sides, the same one twice if the model has one text; None if it reads no text.
        provenance: Origin of the model: recipe, scores, data report, versions.
        folder: Folder that the bundle was read from.
        precision: Precision of the stored weights. A model stored in int8 is packed for translation, unless it
            was read with `dequantize`.
        calibration: Calibration of the confidence in translations, see `write_calibration`; empty if there is none.
    """

    config: ModelConfig
    model: nn.Module
    text: TokenizerPair | None
    provenance: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    precision: str = "float32"
    calibration: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of both sides.

        Raises:
            BundleError: The model reads no text.
        """
        if self.text is None:
            raise BundleError(f"a {self.family} model reads no text; give one that does")
        return self.text

    @property
    def rounding_note(self) -> str:
        """A note that the weights were rounded to int8 before they were read as float32; empty for other models."""
        return f"{self.folder} is stored in int8; its weights are read as float32" if self.precision == "int8" else ""

    @property
    def family(self) -> str:
        """The name of the model's family."""
        return self.config.family_name

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of the manifest, which covers everything in the folder; None if the bundle was not loaded."""
        return None if self.folder is None else (self.folder / MANIFEST_SUM).read_text(encoding="ascii").strip()


def save_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle; a tied parameter is stored once, and the manifest lists its other names.

    Raises:
        BundleError: The folder is not empty.
    """
    _save(folder, bundle, "float32", *tensors_and_ties(bundle.model))


def check_quantized_fits(folder: Path, bundle: Bundle) -> None:
    """Checks that `save_quantized` will find enough disk space, before the work that precedes it.

    Raises:
        OutputError: The disk has less space than a byte for each parameter.
    """
    check_space(folder, sum(parameter.numel() for parameter in bundle.model.parameters()), "the model in int8")


def save_quantized(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle whose matrices are quantized to int8, with one scale per output; packs its model in place.

    Raises:
        BundleError: The folder is not empty.
    """
    _save(folder, bundle, "int8", *quantize_weights(bundle.model))


def _save(folder: Path, bundle: Bundle, precision: str, tensors: dict[str, Tensor], tied: dict[str, str]) -> None:
    texts = {CONFIG: _json(bundle.config.model_dump()), PROVENANCE: _json(bundle.provenance)}

    check_space(folder, tensor_bytes(tensors), "the model")

    def fill(temporary: Path) -> None:
        for name, text in (texts | (bundle.text.to_files() if bundle.text else {})).items():
            (temporary / name).write_bytes(text.encode())
        save_tensors(temporary / WEIGHTS[precision], tensors)

    write_verified_folder(folder, BUNDLE, {"family": bundle.family, "precision": precision, "tied": tied}, fill)


def load_bundle(path: Path | str, *, packed_in: Precision | None = None, dequantize: bool = False) -> Bundle:
    """Reads a bundle, or the best model of a run folder, and verifies every byte of it.

    Args:
        path: Folder of the bundle or run.
        packed_in: Precision in which to pack a model stored in int8; None rejects such models.
        dequantize: Whether to read a model stored in int8 as one in float32, instead of rejecting it.

    Raises:
        BundleError: The folder is not a model, is incomplete, or was changed after it was written; or the model is
            stored in int8 and `packed_in` is None.
    """
    folder = resolve_model(find_model(Path(path)))
    if not (folder / MANIFEST).exists():
        _refuse_other_folders(folder)
    verified = VerifiedFolder(folder, BUNDLE)
    files = {name: verified.read(name) for name in verified.manifest.files if not name.endswith(".safetensors")}
    precision = verified.manifest.precision
    if precision not in WEIGHTS:
        raise BundleError(f"{folder} is stored in {precision!r}, which this version does not read; update transformer")
    if precision == "int8" and packed_in is None and not dequantize:
        raise BundleError(
            f"{folder} is stored in int8, and this needs full weights; give the float32 model it was made of"
        )
    with ThreadPoolExecutor(1) as pool:
        verification = verified.verify_in_background(WEIGHTS[precision], pool)  # takes as long as all other work
        bundle = _read(verified, files, packed_in, verification)
        verification.result()
    return bundle


def _refuse_other_folders(folder: Path) -> None:
    """Refuses published folders, which must be imported first, and models of other programs.

    Raises:
        BundleError: The folder, or file, is one of them.
    """
    check_is_folder(folder)
    config = folder / "config.json"
    has_weights = any(folder.glob("model*.safetensors*"))
    if not has_weights and (other := describe_other_format(folder)) is not None:
        raise BundleError(other)
    if config.is_file() and re.search(rb'"(model_type|architectures)"', config.read_bytes()):
        raise BundleError(
            f"{folder} is a published folder; make a model of it: transformer import {folder} --output MODEL"
        )


def _read(
    verified: VerifiedFolder[BundleManifest],
    files: dict[str, bytes],
    packed_in: Precision | None,
    verification: Future[Path],
) -> Bundle:
    """Builds the bundle; on failure, an error about damaged weights takes precedence."""
    folder, precision = verified.folder, verified.manifest.precision
    weights = folder / WEIGHTS[precision]
    try:
        model_family = family(verified.manifest.family)
        config = model_family.config.model_validate_json(files[CONFIG])
        check_size_of_weights(config, verified.manifest.files[weights.name].size)
        with SkipInit():
            model = model_family.build(config)
        texts = {name: content.decode() for name, content in files.items() if name.startswith("tokenizer")}
        tokenizers = TokenizerPair.from_files(texts) if texts or model_family.reads_text else None
        Provenance.model_validate_json(files[PROVENANCE])
        provenance = dict(json.loads(files[PROVENANCE]))
        if tokenizers:
            check_vocabulary_sizes(tokenizers, config)
        if precision == "int8" and packed_in is None:
            load_dequantized(model, load_tensors(weights), verified.manifest.tied)
        elif packed_in is None or precision == "float32":
            load_parameters(model, load_tensors(weights), verified.manifest.tied)
        else:
            load_quantized(model, load_tensors(weights), verified.manifest.tied, packed_in)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, TransformerError) as error:
        verification.result()
        raise BundleError(
            f"{folder}: {describe_error(error)}; the model is incomplete or of another version"
        ) from error
    return Bundle(config, model.eval(), tokenizers, provenance, folder, precision, read_calibration(folder))


def check_vocabulary_sizes(tokenizers: TokenizerPair, config: ModelConfig) -> None:
    """Checks that no tokenizer has more tokens than the model, or ids of special tokens beyond it.

    Raises:
        BundleError: The tokenizer of a side does.
    """
    sizes = config.model_dump()
    for side, tokenizer in (("src", tokenizers.source), ("tgt", tokenizers.target)):
        known = sizes.get(f"{side}_vocab_size", sizes.get("vocab_size", tokenizer.vocab_size))
        if tokenizer.vocab_size > known:
            raise BundleError(f"a tokenizer of {tokenizer.vocab_size:,} tokens does not go with {known:,} of the model")
        for token in (*tokenizer.special_tokens.present, *chain.from_iterable(tokenizer.boundary_tokens)):
            if not 0 <= token < known:
                raise BundleError(f"the id {token} of a special token is not in 0 to {known - 1} of the model")


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
