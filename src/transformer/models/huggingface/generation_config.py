"""Reading and writing of the generation settings in a published folder."""

import json
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Any, Final

from transformer.config import Config, JsonObject
from transformer.errors import BundleError, note
from transformer.models.huggingface.key_mapping import CONFIG

GENERATION = "generation_config.json"
END = "eos_token_id"
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
        BundleError: There are several such tokens.
    """
    known = _read_token_ids(published, name, default, n_tokens)
    if len(known) > 1:
        raise BundleError(f"{name}={published[name]} in {CONFIG}: a model here has one; keep one")
    return known[0] if known else None


def read_end_ids(
    published: JsonObject, files: Mapping[str, bytes], default: int | None, n_tokens: int, *, several: bool
) -> list[int]:
    """Returns the ids of the tokens that end a text, that of EOS first; ids that no token has are left out.

    The generation settings decide, as in `transformers`. EOS is the token of config.json if that is among them.

    Args:
        published: Content of config.json.
        files: The other small files, by name.
        default: Id if config.json has no setting.
        n_tokens: Number of tokens of the model.
        several: Whether the model may have several.

    Raises:
        BundleError: There are several, and the model may have one only.
    """
    first = _read_token_ids(published, END, default, n_tokens)
    ends = _known(json.loads(files.get(GENERATION, b"{}")).get(END), n_tokens) or first
    if not several and len({*first, *ends}) > 1:
        raise BundleError(
            f"{END} is {first} in {CONFIG} and {ends} in {GENERATION}: an encoder-decoder model here has one; keep one"
        )
    return list(dict.fromkeys([*(token for token in first if token in ends), *ends]))


def _read_token_ids(published: JsonObject, name: str, default: int | None, n_tokens: int) -> list[Any]:
    """Returns the ids of a setting in config.json that are tokens of the model."""
    value = published.get(name, default)
    known = _known(value, n_tokens)
    if not known and value is not None and name in published:
        note(f"{name}={value} in {CONFIG} is none of the {n_tokens:,} tokens of the model; read as no token")
    return known


def _known(value: Any, n_tokens: int) -> list[Any]:
    """Returns one or several ids as a list, without integers that are not tokens of the model."""
    ids: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    return [token for token in ids if not isinstance(token, int) or 0 <= token < n_tokens]


def check_generation(
    published: JsonObject,
    files: Mapping[str, bytes],
    *,
    start: int | None,
    ends: Collection[int],
    never: Iterable[int | None],
) -> None:
    """Checks that the generation settings of a published folder are supported.

    Args:
        published: Content of config.json.
        files: The other small files, by name.
        start: Start token of the decoder; None for models that continue a text.
        ends: Tokens that end a text.
        never: Tokens that are never generated here.

    Raises:
        BundleError: The folder names another start token, or forces or forbids tokens.
    """
    generation: JsonObject = json.loads(files.get(GENERATION, b"{}"))
    begun = generation.get("decoder_start_token_id")
    if start is not None and begun not in (None, start):
        raise BundleError(f"decoder_start_token_id={begun} in {GENERATION} is not {start}, that of {CONFIG}; keep one")
    for place, facts in ((CONFIG, published), (GENERATION, generation)):
        for name in REFUSED:
            if facts.get(name) not in (None, [], {}):
                raise BundleError(f"{name}={facts[name]!r} in {place} is not known; remove it to write without")
        ruled_out = facts.get("bad_words_ids") or ()
        if any(len(word) != 1 or word[0] in ends or word[0] not in never for word in ruled_out):
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
    ends = [token for token in (eos, *values["further_eos_ids"]) if token is not None]
    ids = {"bos_token_id": bos, END: ends if len(ends) > 1 else eos, "pad_token_id": pad}
    known = {name: token for name, token in ids.items() if token is not None}
    return {GENERATION: {**known, "max_length": values["seq_len"], **_bad_words((pad, bos), ends)}}


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
        **_bad_words((pad, start), [end]),
    }  # fmt: skip


def _bad_words(never: Iterable[int | None], ends: Collection[int | None]) -> dict[str, object]:
    words = [[token] for token in dict.fromkeys(never) if token is not None and token not in ends]
    return {"bad_words_ids": words} if words else {}
