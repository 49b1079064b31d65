"""What a published folder says of how its model writes: what is known here, and what is written for others."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from transformer.errors import BundleError

CONFIG, GENERATION = "config.json", "generation_config.json"
REFUSED: Final = (
    "forced_bos_token_id", "forced_decoder_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias",
    "stop_strings", "exponential_decay_length_penalty",
)  # fmt: skip
"""Settings that change what every text holds. Others, such as beams and lengths, are asked for anew at each call."""


def refuse_several_ends(published: Mapping[str, Any]) -> None:
    """Refuses several ends, of which a model here has one.

    Raises:
        BundleError: config.json names a list of them.
    """
    if isinstance(several := published.get("eos_token_id"), list):
        raise BundleError(f"eos_token_id={several} in {CONFIG}: a model here has one end; keep one")


def refuse_other_writing(
    published: Mapping[str, Any],
    files: Mapping[str, bytes],
    *,
    start: int | None,
    end: int | None,
    never: Iterable[int | None],
) -> None:
    """Refuses a folder whose model writes in a way that is not known here.

    Args:
        published: content of config.json.
        files: the other small files by name.
        start: what its decoder begins with; None for models that go on from a text.
        end: what ends a text.
        never: tokens that are never written here.

    Raises:
        BundleError: another begin, another end, or tokens that are forced or ruled out.
    """
    generation: dict[str, Any] = json.loads(files.get(GENERATION, b"{}"))
    ends = generation.get("eos_token_id")
    if other := {*(ends if isinstance(ends, list) else [ends])} - {None, end}:
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


def files_of_continuing(config: Any) -> dict[str, Any]:
    """As `described_writing`, of a model that goes on from a text, with the file's name; the text counts as well."""
    values = config.model_dump()
    bos, eos, pad = (values[f"{role}_id"] for role in ("bos", "eos", "pad"))
    ids = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    known = {name: token for name, token in ids.items() if token is not None}
    return {GENERATION: {**known, "max_length": values["seq_len"], **_ruled_out((pad, bos), eos)}}


def described_writing(start: int | None, end: int | None, pad: int | None, most: int) -> dict[str, Any]:
    """The content of generation_config.json with which `transformers` writes as is done here.

    Args:
        start: what the decoder begins with; never written.
        end: what ends a text.
        pad: what fills rows up; never written.
        most: tokens that a text may have; `transformers` counts what the decoder begins with too.
    """
    return {
        "decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": pad, "max_length": most + 1,
        **_ruled_out((pad, start), end),
    }  # fmt: skip


def _ruled_out(never: Iterable[int | None], end: int | None) -> dict[str, Any]:
    words = [[token] for token in dict.fromkeys(never) if token is not None and token != end]
    return {"bad_words_ids": words} if words else {}
