"""Parameters under published names, and ours: one table a family is read both ways."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer.errors import BundleError

SHOWN = 8
"""Most names that an error lists."""
MOST_LABELS = 1 << 20


@dataclass(frozen=True)
class Renamed:
    """One published tensor.

    Attributes:
        theirs: its name.
        ours: the parameters it becomes: one, or several that are parts of its first axis, one below the other.
        transposed: it is stored the other way round.
        added_axes: of size 1 before those of ours.
        tied: parameters of ours that are the same matrix.
        aliases: further published names of it; where they are there, they must hold the same.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    added_axes: int = 0
    tied: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def linear(theirs: str, ours: str, *, bias: bool = True) -> list[Renamed]:
    """Weight and bias of a linear map."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [Renamed(f"{theirs}.{kind}", (f"{ours}.{kind}",)) for kind in kinds]


def layer_norm(theirs: str, ours: str) -> list[Renamed]:
    """Gain and shift of a `LayerNormalization`."""
    return [Renamed(f"{theirs}.weight", (f"{ours}.alpha",)), Renamed(f"{theirs}.bias", (f"{ours}.beta",))]


def embedding_and_output(theirs: str, output: str, *, shared: bool) -> list[Renamed]:
    """The embedding and the projection of a `LanguageModel`, which may be one matrix."""
    embedding, projection = "embed.embedding.weight", "projection_layer.proj.weight"
    if shared:
        return [Renamed(theirs, (embedding,), tied=(projection,), aliases=(output,))]
    return [Renamed(theirs, (embedding,)), Renamed(output, (projection,))]


def read_renamed(table: Sequence[Renamed], tensors: Mapping[str, Tensor], ignored: str = "") -> dict[str, Tensor]:
    """Our parameters, in float32.

    Args:
        table: of all tensors.
        tensors: published.
        ignored: pattern of names that say nothing, such as tables that can be computed again.

    Raises:
        BundleError: some are missing or not in the table, two that must be the same differ, or one has other axes.
    """
    left = {name: tensor for name, tensor in tensors.items() if not (ignored and re.fullmatch(ignored, name))}
    missing: list[str] = []
    found: dict[str, Tensor] = {}
    for entry in table:
        there = [left.pop(name).float() for name in (entry.theirs, *entry.aliases) if name in left]
        if not there:
            missing.append(entry.theirs)
            continue
        if any(not torch.equal(there[0], other) for other in there[1:]):
            raise BundleError(
                f"{', '.join((entry.theirs, *entry.aliases))} differ, but the configuration makes them one"
            )
        whole = there[0].T if entry.transposed else there[0]
        if not all(size == 1 for size in whole.shape[: entry.added_axes]) or whole.ndim <= entry.added_axes:
            raise BundleError(f"{entry.theirs} has the shape {list(whole.shape)}; the configuration has another")
        whole = whole.flatten(0, entry.added_axes) if entry.added_axes else whole
        parts = whole.chunk(len(entry.ours), dim=0) if len(entry.ours) > 1 else (whole,)
        found |= {name: part.contiguous() for name, part in zip(entry.ours, parts, strict=True)}
        found |= dict.fromkeys(entry.tied, parts[0].contiguous())
    if missing or left:
        raise BundleError("; ".join([*_listed("missing", missing), *_listed("unknown", sorted(left))]))
    return found


def write_renamed(table: Sequence[Renamed], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `read_renamed` reads."""
    found: dict[str, Tensor] = {}
    for entry in table:
        parts = [state[name].detach() for name in entry.ours]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        whole = whole[(None,) * entry.added_axes] if entry.added_axes else whole
        found[entry.theirs] = (whole.T if entry.transposed else whole).contiguous()
    return found


def given(published: Mapping[str, Any], name: str, default: Any) -> Any:
    """A setting that may be left out, or null, for the default; null of a switch is neither, and stays."""
    value = published.get(name, default)
    return default if value is None and not isinstance(default, bool) else value


def refuse_unknown(published: Mapping[str, Any], fixed: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuses settings that this version does not compute.

    Args:
        published: configuration.
        fixed: names of settings and the values that are known of each; the first is what absence means.

    Raises:
        BundleError: a value is none of them.
    """
    for name, known in fixed.items():
        if published.get(name, known[0]) not in known:
            raise BundleError(f"{name}={published[name]!r} is not known; only {known[0]!r} is")


def refuse_architectures(published: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses models whose heads do something else than those that are known.

    Raises:
        BundleError: an architecture is none of them.
    """
    for name in published.get("architectures") or ():
        if name not in known:
            raise BundleError(f"architectures={name!r} is not known; only {', '.join(known)} are")


def refuse_headless(published: Mapping[str, Any], names: Collection[str], heads: Mapping[str, Sequence[str]]) -> None:
    """Refuses a model that lacks what its architecture says it has, which would be read as one without it.

    Args:
        published: configuration.
        names: of the parameters.
        heads: architecture -> names that it has.

    Raises:
        BundleError: a name is missing.
    """
    for architecture in published.get("architectures") or ():
        if missing := [name for name in heads.get(architecture, ()) if name not in names]:
            raise BundleError(f"{', '.join(missing)}: missing, which a {architecture} has; copy the whole folder")


def chosen(published: Mapping[str, Any], name: str, choices: Mapping[str, str], default: str) -> str:
    """Our name of a published choice.

    Raises:
        BundleError: it is none of the choices.
    """
    value = published.get(name) or default
    if value not in choices:
        raise BundleError(f"{name}={value!r} is not known; only {', '.join(choices)} are")
    return choices[value]


def refuse_beyond(published: Mapping[str, Any], name: str, most: int) -> None:
    """Refuses a size that is none: a damaged configuration would be built until memory is full.

    Raises:
        BundleError: a value is no whole number from 1 on, or larger than any model's.
    """
    value = published.get(name)
    if value is not None and not (isinstance(value, int) and 1 <= value <= most):
        raise BundleError(f"{name}={value!r} is no size of a model; the configuration is damaged")


def labels_of(published: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of labels, in the order of their numbers; LABEL_0, LABEL_1 where there are none.

    Of labels of one name (ImageNet has two cranes) the later ones take their numbers: "crane (517)".

    Raises:
        BundleError: there is one alone, a regression.
    """
    refuse_beyond(published, "num_labels", MOST_LABELS)
    names: dict[Any, Any] = published.get("id2label") or {}
    n = published.get("num_labels") or len(names) or 2
    if n < 2:
        raise BundleError(f"num_labels={n}: a model of one number is no classifier, and not known")
    found = [str(names.get(str(number), names.get(number, f"LABEL_{number}"))) for number in range(n)]
    seen: set[str] = set()
    for number, name in enumerate(found):
        found[number] = f"{name} ({number})" if name in seen else name
        seen.add(name)
    return tuple(found)


def written_labels(labels: Sequence[str]) -> dict[str, Any]:
    """What `labels_of` reads."""
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def _listed(title: str, names: list[str]) -> list[str]:
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return [f"{title}: {shown}"] if names else []


ACTIVATION_NAMES = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu",
    "swish": "silu",
}  # fmt: skip
"""Published names of activations, and ours."""
PUBLISHED_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATION_NAMES.items())}
"""Ours, and the one published name that is written."""
