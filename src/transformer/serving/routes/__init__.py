"""The operations of the server, one module per interface."""

from transformer.serving.operations import Operation
from transformer.serving.routes import health
from transformer.serving.settings import ServerSettings


def all_operations(settings: ServerSettings) -> tuple[Operation, ...]:
    """Returns the operations of all interfaces.

    Args:
        settings: Settings of the server; they determine whether there is a page.
    """
    from importlib import import_module
    from importlib.util import find_spec

    names = ["libretranslate", "deepl", "openai", "native", *(["page"] if settings.page else [])]
    modules = [import_module(path) for name in names if find_spec(path := f"{__name__}.{name}")]
    return tuple(operation for module in (health, *modules) for operation in module.OPERATIONS)
