"""Other names of arguments, as other descriptions of the model write them."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from operator import attrgetter
from typing import TypeVar

from torch import nn

Block = TypeVar("Block", bound=nn.Module)


def keyword_aliases(**aliases: str) -> Callable[[type[Block]], type[Block]]:
    """Lets a block be constructed with other names of its arguments, and read under these names.

    `help` and type checkers show the names of the block itself. Only the construction of a block is wrapped.

    Args:
        aliases: Name of an argument and attribute of the block, by its other name.

    Raises:
        TypeError: A call passes an argument under both of its names.
    """

    def decorate(block: type[Block]) -> type[Block]:
        construct = block.__init__
        names = tuple(signature(block).parameters)

        @wraps(construct)
        def init(self: Block, *args: object, **kwargs: object) -> None:
            for alias in aliases.keys() & kwargs.keys():
                name = aliases[alias]
                if name in kwargs or name in names[: len(args)]:
                    raise TypeError(f"{alias}={kwargs[alias]!r} is another name of {name}, which is also passed")
                kwargs[name] = kwargs.pop(alias)
            construct(self, *args, **kwargs)

        block.__init__ = init
        for alias, name in aliases.items():
            setattr(block, alias, property(attrgetter(name), partial(_set, name)))
        return block

    return decorate


def _set(name: str, block: nn.Module, value: object) -> None:
    setattr(block, name, value)
