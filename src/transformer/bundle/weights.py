"""A model's numbers to tensors of a file and back, in float32 or int8."""

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer.errors import BundleError
from transformer.inference.cpu import pack
from transformer.kernels import Precision, Weight

SCALES: Final = "_scales"
"""What the name of an int8 weight's scales ends with, after the name of the weight."""

DRAWS: Final = (Tensor.uniform_, Tensor.normal_)
"""What functions of `torch.nn.init` call that are not seen themselves."""


class Unfilled(TorchFunctionMode):
    """While it is entered, modules are built without first numbers, which stored ones will replace."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leaves memory as it is where it would be initialized."""
        if func in DRAWS or getattr(func, "__module__", None) == torch.nn.init.__name__:
            return (args or tuple((kwargs or {}).values()))[0]
        return func(*args, **(kwargs or {}))


def untied(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
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


def place(model: nn.Module, tensors: dict[str, Tensor], tied: dict[str, str]) -> None:
    """Makes stored tensors the parameters of a model.

    Raises:
        BundleError: names, shapes, types or ties are not those of the model, or a number is not finite.
    """
    _check_ties(model, tied)
    _refuse_non_finite(tensors)
    expected = {name: parameter.dtype for name, parameter in model.state_dict().items()}
    for name, tensor in tensors.items():
        if tensor.dtype != expected.get(name, tensor.dtype):
            raise BundleError(f"{name} is {tensor.dtype}, not {expected[name]}")
    model.load_state_dict(tensors | {alias: tensors[name] for alias, name in tied.items()}, assign=True)
    _tie(model, tied)


def quantize(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Packs a model in int8, in place; returns its tensors as they are stored, and alias -> name."""
    tensors, tied = untied(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rounded: dict[str, Weight] = {}

    def weight_of(parameter: Tensor) -> Weight:
        name = names[id(parameter)]
        rounded[name] = Weight.of(parameter, "int8")
        return rounded[name]

    pack(model, "int8", weight_of)
    for name, weight in rounded.items():
        assert weight.scales is not None
        tensors |= {name: weight.values, name + SCALES: weight.scales}
    return tensors, tied


def place_quantized(model: nn.Module, tensors: dict[str, Tensor], tied: dict[str, str], precision: Precision) -> None:
    """As `place`, for tensors of `quantize`; the model is packed in the given precision.

    Raises:
        BundleError: names, shapes, types or ties are not those of the model, or a number is not finite.
    """
    _check_ties(model, tied)
    _refuse_non_finite(tensors)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    rounded = {name for name in shapes if name + SCALES in tensors}
    rest = {name: tensor for name, tensor in tensors.items() if name not in rounded and not name.endswith(SCALES)}
    for name in rounded:
        values, scales = tensors[name], tensors[name + SCALES]
        fits = values.shape == shapes[name] and scales.shape == values.shape[:1]
        if not fits or values.dtype != torch.int8 or scales.dtype != torch.float32:
            raise BundleError(f"{name} and its scales are not those of an int8 weight")
    aliases = {alias: rest[name] for alias, name in tied.items() if name in rest}
    found = model.load_state_dict(rest | aliases, strict=False, assign=True)
    missing = {str(tied.get(name, name)) for name in found.missing_keys} - rounded
    if missing or found.unexpected_keys:
        raise BundleError(f"missing: {sorted(missing)}, unexpected: {found.unexpected_keys}")
    _tie(model, {alias: name for alias, name in tied.items() if name in rest})
    left = set(rounded)

    def weight_of(parameter: Tensor) -> Weight:
        name = names[id(parameter)]
        left.discard(name)
        stored = Weight(tensors[name], tensors[name + SCALES])
        return stored if precision == "int8" else Weight.of(stored.numbers(), precision)

    pack(model, precision, weight_of)
    if left:
        raise BundleError(f"{', '.join(sorted(left))}: in int8, which this version does not compute there")


def _check_ties(model: nn.Module, tied: dict[str, str]) -> None:
    """Refuses ties that the model, as it was built, does not have: shapes and sizes were checked for its own alone."""
    own = untied(model)[1]
    if tied != own:
        raise BundleError(f"tied: {tied} is not {own}, as the configuration has it")


def _refuse_non_finite(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise BundleError(f"{name} holds numbers that are not finite; the model diverged")


def _tie(model: nn.Module, tied: dict[str, str]) -> None:
    """Makes parameters that are stored once one parameter."""
    for alias, name in tied.items():
        owner, _, leaf = alias.rpartition(".")
        setattr(model.get_submodule(owner), leaf, model.get_parameter(name))
