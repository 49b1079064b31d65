"""Chat templates of published language models: Jinja templates that write the messages of a chat as a prompt."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from transformer.config import JsonObject
from transformer.tokenizers.huggingface_files import CONFIG_FILE, TOKENIZER_FILE

CHAT: Final = "chat"
"""Key of the provenance."""
TEMPLATE_FILE: Final = "chat_template.jinja"


def chat_entries(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the entry of the provenance that records the chat template of a published model; empty if it has none.

    The entry has the `template`, the names of its variables `bos_token` and `eos_token`, and the names of all
    `special_tokens`, which messages must not contain.

    Args:
        files: Contents of the published files by name.
    """
    config = _read(files, CONFIG_FILE)
    template = files[TEMPLATE_FILE].decode() if TEMPLATE_FILE in files else _template_of(config.get("chat_template"))
    if not template:
        return {}
    added = [*_read(files, TOKENIZER_FILE).get("added_tokens", ()), *config.get("added_tokens_decoder", {}).values()]
    special = {token["content"] for token in added if token.get("special")}
    names = {role: _content(config.get(role)) for role in ("bos_token", "eos_token")}
    return {CHAT: {"template": template, **names, "special_tokens": sorted(special | {*names.values()} - {""})}}


def _template_of(entry: object) -> str:
    """Returns the template of tokenizer_config.json, or the one named "default" of several."""
    if isinstance(entry, list):
        templates = cast("list[Mapping[str, str]]", entry)
        return next((entry["template"] for entry in templates if entry.get("name") == "default"), "")
    return entry if isinstance(entry, str) else ""


def _content(token: object) -> str:
    """Returns the text of a special token, which configurations write as a text or as an object."""
    if isinstance(token, Mapping):
        token = cast("Mapping[str, object]", token).get("content")
    return token if isinstance(token, str) else ""


def _read(files: Mapping[str, bytes], name: str) -> JsonObject:
    return json.loads(files.get(name, b"{}"))
