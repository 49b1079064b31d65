"""`transformer shortlist`: learns which target tokens are likely for each source token."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.files import check_files
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import DataError, counted

if TYPE_CHECKING:
    from transformer.decoding.shortlist_training import Pair

BEST, FREQUENT, MOST_PAIRS = 30, 200, 200_000
HELD_OUT_INTERVAL, MAX_HELD_OUT = 50, 1000
"""Interval at which a pair is held out to measure the coverage of the shortlist, and the maximum number of these."""


@takes_verbosity
def shortlist(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="source side of the training text, plain or compressed")],
    target: Annotated[Path, typer.Option(help="its translation, aligned line by line")],
    output_path: Annotated[Path, typer.Option("--output", help="file to write, e.g. shortlist.safetensors")],
    best: Annotated[int, typer.Option(min=1, help="number of target tokens per source token")] = BEST,
    frequent: Annotated[
        int, typer.Option(min=1, help="number of most frequent tokens that every sentence may use")
    ] = FREQUENT,
    most_pairs: Annotated[
        int, typer.Option(min=1, help="maximum number of sentence pairs, spread evenly over the text")
    ] = MOST_PAIRS,
    invalid_utf8: InvalidOption = "error",
) -> None:
    """Learn which target tokens are likely for each source token, so that translation is faster.

    Prints the share of tokens of held-out translations that the shortlist contains. Pass the file to translate or
    evaluate with --shortlist; only its tokens are then predicted.

    Example: transformer shortlist runs/first --source train.en --target train.de --output shortlist.safetensors
    """
    check_files([source, target], [output_path])
    from transformer.data.readers import read_pairs

    lines = read_pairs(source, target, invalid=invalid_choice(invalid_utf8))
    write_shortlist(model, lines, output_path, source, best=best, frequent=frequent, most_pairs=most_pairs)
    typer.echo(f"next: transformer translate {model} --shortlist {output_path}")


def write_shortlist(
    model: Path,
    lines: Iterable[tuple[str, str]],
    output_path: Path,
    corpus: Path,
    *,
    best: int = BEST,
    frequent: int = FREQUENT,
    most_pairs: int = MOST_PAIRS,
) -> None:
    """Learns a shortlist, writes it, and prints the share of tokens that it contains.

    Args:
        model: Model whose tokenizers are used.
        lines: Sentence pairs.
        output_path: File to write.
        corpus: File of the pairs, for messages.
        best: Number of target tokens per source token.
        frequent: Number of most frequent tokens that every sentence may use.
        most_pairs: Maximum number of pairs.

    Raises:
        DataError: There are too few pairs.
    """
    from transformer.bundle import load_bundle  # loads torch
    from transformer.cli.progress import progress_bar
    from transformer.decoding.shortlist_training import (
        ITERATIONS,
        check_special_token_ids,
        coverage,
        learn_shortlist,
        save_shortlist,
        subsample_evenly,
    )

    tokenizers = load_bundle(model, packed_in="int8").tokenizers
    check_special_token_ids(tokenizers)
    sides = zip(*(subsample_evenly(lines, most_pairs) or [("", "")]), strict=True)
    encoded = [
        tokenizer.encode_batch(side)
        for tokenizer, side in zip((tokenizers.source, tokenizers.target), sides, strict=True)
    ]
    pairs = [(first, second) for first, second in zip(*encoded, strict=True) if first and second]
    training_pairs, held_out = _split_pairs(pairs, corpus)
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    with progress_bar("pairs", ITERATIONS * len(training_pairs)) as done:
        learned_shortlist = learn_shortlist(training_pairs, sizes, best=best, frequent=frequent, done=done)
    save_shortlist(output_path, learned_shortlist, tokenizers)
    share, size = coverage(learned_shortlist, held_out)
    typer.echo(
        f"{size:,.0f} of {sizes[1]:,} tokens per sentence on average, which cover {share:.2%} of the tokens of "
        f"{len(held_out):,} held-out translations"
    )


def _split_pairs(pairs: "Sequence[Pair]", source: Path) -> "tuple[list[Pair], list[Pair]]":
    """Returns the pairs to learn from, and those held out to measure the coverage.

    Raises:
        DataError: There are none to learn from.
    """
    held_out = [*pairs[::HELD_OUT_INTERVAL][:MAX_HELD_OUT]]
    training_pairs = [
        pair
        for index, pair in enumerate(pairs)
        if index % HELD_OUT_INTERVAL or index // HELD_OUT_INTERVAL >= MAX_HELD_OUT
    ]
    if not training_pairs:
        raise DataError(
            f"{source} has {counted(len(pairs), 'pair')} with text on both sides, too few to learn from; give more"
        )
    return training_pairs, held_out
