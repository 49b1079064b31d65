"""Frozen parameters, which a run leaves as they are, and frozen rows of embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from torch import Tensor, nn

from transformer.errors import ConfigError

EMBEDDINGS: Final = "embeddings"
"""Word of `training.freeze` for all tables of embeddings, and with them the projections that share their weights."""
KNOWN_TOKENS: Final = "known_tokens"
"""Word of `training.freeze` for the rows of the tokens that the model had before it got new ones."""


def freeze_parameters(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes the parameters that patterns name; they get no gradient and no state of the optimizer.

    A pattern matches the name of a parameter or of a module that contains it, with the wildcards of file names. A
    matrix that is shared is frozen if one of its names matches.

    Args:
        model: Model before it is distributed.
        patterns: Names such as `encoder`, `decoder.layers.[01]` or `*.bias`, and the word `embeddings`.

    Raises:
        ConfigError: A pattern matches nothing, or no parameter is left to train.
    """
    for pattern in patterns:
        if pattern == KNOWN_TOKENS:
            continue
        frozen = list(_matching(model, pattern))
        if not frozen:
            raise ConfigError(f"training.freeze={pattern!r} matches no parameter; {_advice(model, pattern)}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"training.freeze={list(patterns)} leaves no parameter to train; freeze fewer")


def trained_parameters(model: nn.Module, kept_rows: Mapping[nn.Parameter, Tensor]) -> int:
    """Returns the number of parameters that are trained, where some rows may be kept as they are."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kept = sum(int(rows.sum()) * parameter[0].numel() for parameter, rows in kept_rows.items())
    return sum(parameter.numel() for parameter in trained) - kept


def _matching(model: nn.Module, pattern: str) -> Iterator[nn.Parameter]:
    if pattern == EMBEDDINGS:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                yield from module.parameters()
        return
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if any(fnmatchcase(prefix, pattern) for prefix in _prefixes(name)):
            yield parameter


def _prefixes(name: str) -> Iterator[str]:
    """Yields the names of the modules that contain a parameter, from the outermost, and its own name."""
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _advice(model: nn.Module, pattern: str) -> str:
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    known = dict.fromkeys([EMBEDDINGS, KNOWN_TOKENS, *(prefix for name in names for prefix in _prefixes(name))])
    near = get_close_matches(pattern, known, n=3, cutoff=0.5)
    outermost = dict.fromkeys([EMBEDDINGS, *(name.split(".")[0] for name in names)])
    return f"write {' or '.join(near)}" if near else f"name a part such as {', '.join(outermost)}"
