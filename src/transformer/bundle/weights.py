"""Conversion between a model's parameters and the stored tensors, in float32 or int8."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer.errors import BundleError
from transformer.inference.cpu import pack
from transformer.kernels import Precision, Weight, quantize_to_int8

SCALES: Final = "_scales"
"""Suffix that the name of an int8 weight gets for its scales."""

DRAWS: Final = (Tensor.uniform_, Tensor.normal_)
"""Tensor methods called by those functions of `torch.nn.init` that the mode cannot intercept themselves."""


class SkipInit(TorchFunctionMode):
    """A context in which modules are built without initializing parameters, which are loaded afterwards."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Skips the functions that initialize parameters."""
        if func in DRAWS or getattr(func, "__module__", None) == torch.nn.init.__name__:
            return (args or tuple((kwargs or {}).values()))[0]
        return func(*args, **(kwargs or {}))


def tensors_and_ties(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns the distinct tensors by name, and for each tied parameter a mapping from its alias to that name."""
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


def load_parameters(model: nn.Module, tensors: dict[str, Tensor], tied: dict[str, str]) -> None:
    """Makes stored tensors the parameters of a model.

    Raises:
        BundleError: Names, shapes, types or ties are not those of the model, or a number is not finite.
    """
    _check_ties(model, tied)
    _refuse_non_finite(tensors)
    check_tensors(model, tensors, may_lack=tied)
    model.load_state_dict(tensors | {alias: tensors[name] for alias, name in tied.items()}, assign=True)
    _tie(model, tied)


def quantize_weights(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Quantizes the weights of a model to int8 and packs it, in place.

    Returns:
        The tensors to store, and the name of each alias.
    """
    tensors, tied = tensors_and_ties(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rounded: dict[str, tuple[Tensor, Tensor]] = {}

    def weight_of(parameter: Tensor) -> Weight:
        name = names[id(parameter)]
        rounded[name] = quantize_to_int8(parameter)
        return Weight(*rounded[name])

    pack(model, "int8", weight_of)
    for name, (values, scales) in rounded.items():
        tensors |= {name: values, name + SCALES: scales}
    return tensors, tied


def load_dequantized(model: nn.Module, tensors: dict[str, Tensor], tied: dict[str, str]) -> None:
    """Dequantizes the tensors of `quantize_weights` and makes them the parameters of an unpacked model.

    Raises:
        BundleError: Names, shapes, types or ties are not those of the model, or a number is not finite.
    """
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALES) and name.removesuffix(SCALES) in tensors:
            continue
        scales = tensors.get(name + SCALES)
        if scales is None:
            plain[name] = tensor
            continue
        if tensor.dtype != torch.int8 or scales.shape != tensor.shape[:1] or scales.dtype != torch.float32:
            raise BundleError(f"{name} and its scales are not those of an int8 weight")
        plain[name] = Weight(tensor, scales).dequantize()
    load_parameters(model, plain, tied)


def load_quantized(model: nn.Module, tensors: dict[str, Tensor], tied: dict[str, str], precision: Precision) -> None:
    """Makes the tensors of `quantize_weights` the parameters of a model, which is packed in `precision`.

    Raises:
        BundleError: Names, shapes, types or ties are not those of the model, or a number is not finite.
    """
    _check_ties(model, tied)
    _refuse_non_finite(tensors)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    rounded = {name for name in shapes if name + SCALES in tensors}
    rest = {name: tensor for name, tensor in tensors.items() if name not in rounded and not name.endswith(SCALES)}
    for name in rounded:
        values, scales = tensors[name], tensors[name + SCALES]
        fits = values.shape == shapes[name] and scales.shape == values.shape[:1]
        if not fits or values.dtype != torch.int8 or scales.dtype != torch.float32:
            raise BundleError(f"{name} and its scales are not those of an int8 weight")
    check_tensors(model, rest, may_lack=model.state_dict())
    aliases = {alias: rest[name] for alias, name in tied.items() if name in rest}
    keys = model.load_state_dict(rest | aliases, strict=False, assign=True)
    missing = {str(tied.get(name, name)) for name in keys.missing_keys} - rounded
    if missing:
        raise BundleError(f"the weights lack {min(missing)}")
    _tie(model, {alias: name for alias, name in tied.items() if name in rest})
    names, left = {id(parameter): name for name, parameter in model.named_parameters()}, set(rounded)

    def weight_of(parameter: Tensor) -> Weight:
        name = names[id(parameter)]
        if name not in rounded:  # by a version that left it as it was
            return Weight.from_tensor(parameter, precision)
        left.discard(name)
        stored = Weight(tensors[name], tensors[name + SCALES])
        return stored if precision == "int8" else Weight.from_tensor(stored.dequantize(), precision)

    pack(model, precision, weight_of)
    if left:
        raise BundleError(f"{', '.join(sorted(left))}: in int8, which this version does not compute there")


def check_tensors(model: nn.Module, tensors: Mapping[str, Tensor], may_lack: Collection[str] = ()) -> None:
    """Checks names, types and shapes of stored tensors.

    Args:
        model: Model that is to hold the tensors.
        tensors: Stored tensors by name.
        may_lack: Names of parameters that need not be stored.

    Raises:
        BundleError: A tensor is missing, unexpected, or of another type or shape.
    """
    expected = model.state_dict()
    if missing := sorted(expected.keys() - tensors.keys() - {*may_lack}):
        raise BundleError(f"the weights lack {missing[0]}")
    for name, tensor in tensors.items():
        if name not in expected:
            raise BundleError(f"the weights hold {name}, which the model does not have")
        parameter = expected[name]
        if (tensor.dtype, tensor.shape) != (parameter.dtype, parameter.shape):
            raise BundleError(
                f"{name} is {_describe_tensor(tensor)}, by the configuration {_describe_tensor(parameter)}"
            )


def _describe_tensor(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of {' x '.join(map(str, tensor.shape))}"


def _check_ties(model: nn.Module, tied: dict[str, str]) -> None:
    """Checks that the stored ties are those of the built model, whose shapes are checked."""
    expected = tensors_and_ties(model)[1]
    if tied != expected:
        raise BundleError(f"tied: {tied} is not {expected}, as the configuration has it")


def _refuse_non_finite(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise BundleError(f"{name} holds numbers that are not finite; the model diverged")


def _tie(model: nn.Module, tied: dict[str, str]) -> None:
    """Ties parameters that are stored only once."""
    for alias, name in tied.items():
        owner, _, leaf = alias.rpartition(".")
        setattr(model.get_submodule(owner), leaf, model.get_parameter(name))
