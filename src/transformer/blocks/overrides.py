"""Functions of the blocks that a context can replace."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

Args = ParamSpec("Args")
Result = TypeVar("Result")


def overridable(function: Callable[Args, Result]) -> Callable[Args, Result]:
    """Lets a `torch.overrides.TorchFunctionMode` replace a function of the blocks, as it can replace those of torch.

    Within such a context, the context decides what a call computes. Training on a CPU replaces these functions by
    compiled kernels. `docs/development/architecture.md` lists them under "What replaces the functions of the blocks".
    """

    @wraps(function)
    def call(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        tensors = tuple(arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor))
        if has_torch_function(tensors):
            return handle_torch_function(call, tensors, *args, **kwargs)
        return function(*args, **kwargs)

    return call
