"""Reading and writing of the generation settings in a published folder."""

import json
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from transformer.config import Config, JsonObject
from transformer.errors import BundleError, note
from transformer.models.huggingface.key_mapping import CONFIG

GENERATION = "generation_config.json"
ROLES: Final = {"bos_token_id": "start", "eos_token_id": "end"}
REFUSED: Final = (
    "forced_bos_token_id", "forced_decoder_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias",
    "stop_strings", "exponential_decay_length_penalty",
)  # fmt: skip
"""Settings that change every generated text. Others, such as beams and lengths, are options of each call."""


def read_token_id(published: JsonObject, name: str, default: int | None, n_tokens: int) -> int | None:
    """Returns the id of a special token; ids that no token of the model has are left out.

    Such ids are remains of the configuration that a model was derived from, e.g. GPT-2's 50256 with a small vocabulary,
    or say that the model lacks the token (-1).

    Args:
        published: Content of config.json.
        name: Name of the setting.
        default: Id if the setting is absent.
        n_tokens: Number of tokens of the model.

    Raises:
        BundleError: There are several such tokens, e.g. several that end a text.
    """
    value = published.get(name, default)
    known = [token for token in _as_list(value) if not isinstance(token, int) or 0 <= token < n_tokens]
    if len(known) > 1:
        raise BundleError(f"{name}={value} in {CONFIG}: a model here has one {ROLES.get(name, 'such token')}; keep one")
    if known:
        return known[0]
    if value is not None and name in published:
        note(f"{name}={value} in {CONFIG} is none of the {n_tokens:,} tokens of the model; read as no token")
    return None


def _as_list(value: Any) -> list[Any]:
    """Returns a value as a list; None is empty."""
    return value if isinstance(value, list) else [] if value is None else [value]


def check_generation(
    published: JsonObject,
    files: Mapping[str, bytes],
    *,
    start: int | None,
    end: int | None,
    never: Iterable[int | None],
    n_tokens: int,
) -> None:
    """Checks that the generation settings of a published folder are supported.

    Args:
        published: Content of config.json.
        files: The other small files, by name.
        start: Start token of the decoder; None for models that continue a text.
        end: End-of-sequence token.
        never: Tokens that are never generated here.
        n_tokens: Number of tokens of the model; larger ids are left out.

    Raises:
        BundleError: The folder names another start or end token, or forces or forbids tokens.
    """
    generation: JsonObject = json.loads(files.get(GENERATION, b"{}"))
    ends = generation.get("eos_token_id")
    if other := {token for token in _as_list(ends) if token != end and (token is None or 0 <= token < n_tokens)}:
        raise BundleError(f"eos_token_id={ends} in {GENERATION} names {other}, which {CONFIG} does not; keep one end")
    begun = generation.get("decoder_start_token_id")
    if start is not None and begun not in (None, start):
        raise BundleError(f"decoder_start_token_id={begun} in {GENERATION} is not {start}, that of {CONFIG}; keep one")
    for place, facts in ((CONFIG, published), (GENERATION, generation)):
        for name in REFUSED:
            if facts.get(name) not in (None, [], {}):
                raise BundleError(f"{name}={facts[name]!r} in {place} is not known; remove it to write without")
        ruled_out = facts.get("bad_words_ids") or ()
        if any(len(word) != 1 or word[0] == end or word[0] not in never for word in ruled_out):
            raise BundleError(
                f"bad_words_ids={ruled_out!r} in {place} rules out more than what is never written; remove it, and "
                "ban words at each call"
            )


def read_repetition(published: JsonObject, files: Mapping[str, bytes]) -> dict[str, float | int]:
    """Returns what a published folder says about repetitions, as options of `Search`; neutral values are left out.

    Args:
        published: Content of config.json, which counts in the absence of generation_config.json.
        files: The other small files, by name.

    Raises:
        BundleError: A value is not a valid one.
    """
    place = GENERATION if GENERATION in files else CONFIG
    settings: JsonObject = json.loads(files[GENERATION]) if place == GENERATION else published
    penalty, size = settings.get("repetition_penalty"), settings.get("no_repeat_ngram_size")
    if penalty is not None and not (isinstance(penalty, int | float) and 0 < penalty < inf):
        raise BundleError(f"repetition_penalty={penalty!r} in {place} must be a number above 0; remove it")
    if size is not None and not (isinstance(size, int) and size >= 0):
        raise BundleError(f"no_repeat_ngram_size={size!r} in {place} is not a number of tokens; remove it")
    options = {"repetition_penalty": penalty if penalty != 1 else None, "no_repeat_ngram": size or None}
    return {name: value for name, value in options.items() if value is not None}


def write_repetition(options: Mapping[str, object]) -> JsonObject:
    """Returns the settings that `read_repetition` reads as these options."""
    return {{"no_repeat_ngram": "no_repeat_ngram_size"}.get(name, name): value for name, value in options.items()}


def language_model_files(config: Config) -> dict[str, object]:
    """Returns generation_config.json, by its name, for a language model; `max_length` includes the prompt."""
    values = config.model_dump()
    bos, eos, pad = (values[f"{role}_id"] for role in ("bos", "eos", "pad"))
    ids = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    known = {name: token for name, token in ids.items() if token is not None}
    return {GENERATION: {**known, "max_length": values["seq_len"], **_bad_words((pad, bos), eos)}}


def encoder_decoder_files(config: Config) -> dict[str, object]:
    """Returns generation_config.json, by its name, for an encoder-decoder model."""
    values = config.model_dump()
    start, end, pad = (values[f"{role}_id"] for role in ("start", "eos", "pad"))
    return {GENERATION: generation_config(start, end, pad, values["tgt_seq_len"])}


def generation_config(start: int | None, end: int | None, pad: int | None, max_tokens: int) -> dict[str, object]:
    """Returns a generation_config.json with which `transformers` generates the same texts as this package.

    Args:
        start: Start token of the decoder; never generated.
        end: End-of-sequence token.
        pad: Padding token; never generated.
        max_tokens: Maximum number of tokens of a text; `transformers` also counts the start token.
    """
    return {
        "decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": pad, "max_length": max_tokens + 1,
        **_bad_words((pad, start), end),
    }  # fmt: skip


def _bad_words(never: Iterable[int | None], end: int | None) -> dict[str, object]:
    words = [[token] for token in dict.fromkeys(never) if token is not None and token != end]
    return {"bad_words_ids": words} if words else {}
