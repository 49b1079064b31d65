"""The operations of the server, one module per interface."""

from transformer.serving.operations import Operation
from transformer.serving.routes import deepl, health, libretranslate, native, openai, page
from transformer.serving.settings import ServerSettings


def all_operations(settings: ServerSettings) -> tuple[Operation, ...]:
    """Returns the operations of all interfaces.

    Args:
        settings: Settings of the server; they determine whether there is a page.
    """
    modules = (health, libretranslate, deepl, openai, native, *([page] if settings.page else []))
    return tuple(operation for module in modules for operation in module.OPERATIONS)
