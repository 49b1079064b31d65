"""Conversion between published weights (`state_dict` keys) and the parameters here, by one table per family."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer.config import JsonObject
from transformer.errors import BundleError

CONFIG = "config.json"
OTHER_PROGRAM = "run this model with another program, e.g. transformers"
"""Remedy for models that are not supported."""
WRAPPERS = ("_orig_mod", "module")
"""Parts of parameter names that `torch.compile` and `DistributedDataParallel` add."""
MAX_LISTED = 8
"""Maximum number of names that an error lists."""
MAX_LABELS = 1 << 20


@dataclass(frozen=True)
class ParameterMapping:
    """The parameters that correspond to one published tensor.

    Attributes:
        published: Published name of the tensor.
        parameters: Names of the parameters it becomes: one, or several that are concatenated along its first axis.
        transposed: Whether the published tensor is transposed.
        added_axes: Number of leading axes of size 1 that only the published tensor has.
        tied: Further names of parameters that are the same matrix.
        aliases: Further published names of the tensor; if present, they must hold the same values.
    """

    published: str
    parameters: tuple[str, ...]
    transposed: bool = False
    added_axes: int = 0
    tied: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def linear(hf_name: str, our_name: str, *, bias: bool = True) -> list[ParameterMapping]:
    """Returns the mapping of the weight and bias of a linear layer."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [ParameterMapping(f"{hf_name}.{kind}", (f"{our_name}.{kind}",)) for kind in kinds]


def layer_norm(hf_name: str, our_name: str) -> list[ParameterMapping]:
    """Returns the mapping of the gain and shift of a `LayerNormalization`."""
    return [
        ParameterMapping(f"{hf_name}.weight", (f"{our_name}.alpha",)),
        ParameterMapping(f"{hf_name}.bias", (f"{our_name}.beta",)),
    ]


def embedding_and_output(hf_name: str, output: str, *, shared: bool) -> list[ParameterMapping]:
    """Returns the mapping of the embedding and projection of a `LanguageModel`, which may be one matrix."""
    embedding, projection = "embed.embedding.weight", "projection_layer.proj.weight"
    if shared:
        return [ParameterMapping(hf_name, (embedding,), tied=(projection,), aliases=(output,))]
    return [ParameterMapping(hf_name, (embedding,)), ParameterMapping(output, (projection,))]


def unwrap(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors of a compiled or distributed model with the names that they have in the model itself.

    Raises:
        BundleError: Two tensors have the same name then.
    """
    names = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in tensors}
    first = {unwrapped: name for name, unwrapped in reversed(names.items())}
    if twice := [name for name, unwrapped in names.items() if first[unwrapped] != name]:
        raise BundleError(f"{twice[0]} and {first[names[twice[0]]]} are the same parameter; keep one of them")
    return {names[name]: tensor for name, tensor in tensors.items()}


def from_published(
    table: Sequence[ParameterMapping], tensors: Mapping[str, Tensor], ignored: str = ""
) -> dict[str, Tensor]:
    """Converts published tensors to parameters in float32.

    Args:
        table: Mapping of all tensors.
        tensors: Published tensors, by name.
        ignored: Pattern of names to ignore, for example those of tables that can be recomputed.

    Raises:
        BundleError: A tensor is missing or not in the table, tensors that must be equal differ, or one has other axes.
    """
    left = {name: tensor for name, tensor in tensors.items() if not (ignored and re.fullmatch(ignored, name))}
    missing: list[str] = []
    state: dict[str, Tensor] = {}
    for entry in table:
        copies = [left.pop(name).float() for name in (entry.published, *entry.aliases) if name in left]
        if not copies:
            missing.append(entry.published)
            continue
        if any(not torch.equal(copies[0], other) for other in copies[1:]):
            raise BundleError(
                f"{', '.join((entry.published, *entry.aliases))} differ, but the configuration makes them one"
            )
        whole = copies[0].T if entry.transposed else copies[0]
        if not all(size == 1 for size in whole.shape[: entry.added_axes]) or whole.ndim <= entry.added_axes:
            raise BundleError(f"{entry.published} has the shape {list(whole.shape)}; the configuration has another")
        whole = whole.flatten(0, entry.added_axes) if entry.added_axes else whole
        parts = whole.chunk(len(entry.parameters), dim=0) if len(entry.parameters) > 1 else (whole,)
        state |= {name: part.contiguous() for name, part in zip(entry.parameters, parts, strict=True)}
        state |= dict.fromkeys(entry.tied, parts[0].contiguous())
    if missing or left:
        differences = "; ".join([*_list_names("missing", missing), *_list_names("unknown", sorted(left))])
        raise BundleError(
            f"{differences}; weights and {CONFIG} describe different models, copy both from one folder, or "
            f"{OTHER_PROGRAM}"
        )
    return state


def to_published(table: Sequence[ParameterMapping], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Converts parameters to published tensors, the inverse of `from_published`."""
    tensors: dict[str, Tensor] = {}
    for entry in table:
        parts = [state[name].detach() for name in entry.parameters]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        whole = whole[(None,) * entry.added_axes] if entry.added_axes else whole
        tensors[entry.published] = (whole.T if entry.transposed else whole).contiguous()
    return tensors


def setting(published: JsonObject, name: str, default: object) -> Any:
    """Returns a setting, or its default if it is absent or null; null is kept if the default is a boolean."""
    value = published.get(name, default)
    return default if value is None and not isinstance(default, bool) else value


def check_settings(published: JsonObject, fixed: Mapping[str, tuple[object, ...]], file: str = CONFIG) -> None:
    """Checks that settings have supported values.

    Args:
        published: Published configuration.
        fixed: Supported values of each setting, the default of an absent setting first.
        file: Name of the file that holds them, for messages.

    Raises:
        BundleError: A setting has another value.
    """
    for name, known in fixed.items():
        if published.get(name, known[0]) not in known:
            raise BundleError(f"{file}: {name}={published[name]!r} is not known; only {known[0]!r} is; {OTHER_PROGRAM}")


def check_architectures(published: JsonObject, known: Sequence[str]) -> None:
    """Checks that the architectures named in a configuration are supported.

    Raises:
        BundleError: An architecture is not among `known`.
    """
    for name in published.get("architectures") or ():
        if name not in known:
            raise BundleError(
                f"{CONFIG}: architectures={name!r} is not known; only {', '.join(known)} are; {OTHER_PROGRAM}"
            )


def check_heads(published: JsonObject, names: Collection[str], heads: Mapping[str, Sequence[str]]) -> None:
    """Checks that a model has the heads of its architecture; it would otherwise be read as a model without them.

    Args:
        published: Published configuration.
        names: Names of the parameters.
        heads: Parameter names that each architecture must have.

    Raises:
        BundleError: A parameter is missing.
    """
    for architecture in published.get("architectures") or ():
        if missing := [name for name in heads.get(architecture, ()) if name not in names]:
            raise BundleError(f"{', '.join(missing)}: missing, which a {architecture} has; copy the whole folder")


def map_choice(published: JsonObject, name: str, choices: Mapping[str, str], default: str) -> str:
    """Returns this package's name for the value of a published setting.

    Raises:
        BundleError: The value is not among `choices`.
    """
    value = published.get(name) or default
    if value not in choices:
        raise BundleError(f"{CONFIG}: {name}={value!r} is not known; only {', '.join(choices)} are; {OTHER_PROGRAM}")
    return choices[value]


def check_size(published: JsonObject, name: str, max_size: int) -> None:
    """Checks that a size is plausible, so that a damaged configuration does not exhaust the memory.

    Raises:
        BundleError: The value is not an integer from 1 to `max_size`.
    """
    value = published.get(name)
    if value is not None and not (isinstance(value, int) and 1 <= value <= max_size):
        raise BundleError(f"{CONFIG}: {name}={value!r} is not a size of a model; the file is damaged, copy it again")


def read_labels(published: JsonObject) -> tuple[str, ...]:
    """Returns the names of the labels, in the order of their numbers; default: LABEL_0, LABEL_1.

    If labels have the same name (ImageNet has two cranes), the later ones get their numbers appended: "crane (517)".

    Raises:
        BundleError: The model has a single label, as in regression.
    """
    check_size(published, "num_labels", MAX_LABELS)
    names: Mapping[object, object] = published.get("id2label") or {}
    n = published.get("num_labels") or len(names) or 2
    if n < 2:
        raise BundleError(
            f"{CONFIG}: num_labels={n}: a model with one output is not a classifier; give a model with at least two "
            "labels"
        )
    labels = [str(names.get(str(number), names.get(number, f"LABEL_{number}"))) for number in range(n)]
    seen: set[str] = set()
    for number, name in enumerate(labels):
        labels[number] = f"{name} ({number})" if name in seen else name
        seen.add(name)
    return tuple(labels)


def write_labels(labels: Sequence[str]) -> dict[str, object]:
    """Returns the settings that `read_labels` reads."""
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _list_names(title: str, names: list[str]) -> list[str]:
    shown = ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
    return [f"{title}: {shown}"] if names else []


ACTIVATION_NAMES = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu",
    "swish": "silu", "gelu_python": "gelu", "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
}  # fmt: skip
"""Activations of this package, by their published names."""
PUBLISHED_ACTIVATIONS = {our_name: hf_name for hf_name, our_name in reversed(ACTIVATION_NAMES.items())}
"""The published name that is written for each activation."""
