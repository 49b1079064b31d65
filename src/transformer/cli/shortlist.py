"""`transformer shortlist`: which target tokens go with which source tokens."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice, refuse_same
from transformer.errors import DataError

HELD_OUT, MOST_HELD_OUT = 50, 1000
"""Every so many pairs one is left out of learning and tells what the list lacks, up to a number."""


def shortlist(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="source side of the training text, plain or compressed")],
    target: Annotated[Path, typer.Option(help="its translation, line by line")],
    out: Annotated[Path, typer.Option(help="file to write, e.g. shortlist.safetensors")],
    best: Annotated[int, typer.Option(min=1, help="target tokens that each source token brings along")] = 30,
    frequent: Annotated[int, typer.Option(min=1, help="most frequent tokens that every sentence may use")] = 200,
    most_pairs: Annotated[
        int, typer.Option(min=1, help="most sentence pairs to learn from, evenly taken from the whole text")
    ] = 200_000,
    invalid_utf8: InvalidOption = "error",
) -> None:
    """Learn which tokens a translation may hold, given its source: translate then computes no others.

    It says how many of the tokens of held-out translations the lists hold. translate and evaluate take the file by
    --shortlist.

    Example: transformer shortlist runs/first --source train.en --target train.de --out shortlist.safetensors
    """
    from transformer.bundle import load_bundle  # loads torch
    from transformer.cli.progress import counted
    from transformer.data.readers import read_pairs
    from transformer.decoding.shortlist_training import (
        ITERATIONS,
        check_special_token_ids,
        coverage,
        learn_shortlist,
        save_shortlist,
        subsample_evenly,
    )

    refuse_same([source, target], [out])
    if not out.parent.is_dir():
        raise DataError(f"{out.parent} is no folder; make it, or choose another one")
    tokenizers = load_bundle(model, packed_in="int8").tokenizers
    check_special_token_ids(tokenizers)
    lines = subsample_evenly(read_pairs(source, target, invalid=invalid_choice(invalid_utf8)), most_pairs)
    sides = zip(*lines, strict=True)
    encoded = [
        each.encode_batch(side) for each, side in zip((tokenizers.source, tokenizers.target), sides, strict=True)
    ]
    pairs = [pair for pair in zip(*encoded, strict=True) if all(pair)]
    held_out = pairs[::HELD_OUT][:MOST_HELD_OUT]
    learned = [pair for place, pair in enumerate(pairs) if place % HELD_OUT or place // HELD_OUT >= MOST_HELD_OUT]
    if not learned:
        raise DataError(f"{source} has {len(pairs)} pairs with text on both sides, too few to learn from; give more")
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    with counted("pairs", ITERATIONS * len(learned)) as done:
        found = learn_shortlist(learned, sizes, best=best, frequent=frequent, done=done)
    save_shortlist(out, found, tokenizers)
    share, size = coverage(found, held_out)
    typer.echo(
        f"{size:,.0f} of {sizes[1]:,} tokens a sentence on average; they hold {share:.2%} of the tokens of "
        f"{len(held_out):,} held-out translations"
    )
    typer.echo(f"next: transformer translate {model} --shortlist {out}")
