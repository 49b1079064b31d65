"""`transformer filter`: selects the pairs of a corpus that are worth training on."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.check import named_files, two_texts
from transformer.cli.completion import complete_model
from transformer.cli.corpus import takes_corpus
from transformer.cli.files import check_files
from transformer.cli.hub import obtain_model
from transformer.cli.outputs import open_output
from transformer.cli.progress import progress_bar
from transformer.cli.search import languages_of
from transformer.cli.verbosity import say, takes_verbosity
from transformer.data.config import file_format
from transformer.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from transformer.cli.corpus import Corpus
    from transformer.data.quality.selection import JudgedPair
    from transformer.pipelines.translation.config import Languages

CHUNK_PAIRS = 2048
LOW_SCORE = "low-score"
"""Reason of the pairs that models find least likely."""

AllowOption = Annotated[str, typer.Option(help="reasons for which nothing is dropped, e.g. numbers,copy")]


@dataclass(frozen=True)
class Ranking:
    """Ranking of pairs by models.

    Attributes:
        model: Model from source to target.
        reverse: Model from target to source; None without one.
        share: Share of the pairs that are kept.
        languages: Source and target language, which models of several languages need.
    """

    model: Path
    reverse: Path | None
    share: float
    languages: "Languages"


@takes_verbosity
@takes_corpus
def filter_corpus(
    output_path: Annotated[
        Path,
        typer.Option("--output", help="file of the pairs that are kept: .tsv, source and target in columns, or .jsonl"),
    ],
    dropped_path: Annotated[
        Path | None,
        typer.Option("--dropped", help="file of the other pairs (.tsv or .jsonl), each with its line and the reason"),
    ] = None,
    allow: AllowOption = "",
    model: Annotated[
        Path | None,
        typer.Option(
            help="model from source to target, which ranks the pairs for --share", autocompletion=complete_model
        ),
    ] = None,
    reverse: Annotated[
        Path | None, typer.Option(help="model from target to source, for a better rank", autocompletion=complete_model)
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of the pairs to keep of those that no rule drops")
    ] = None,
    source_language: Annotated[
        str | None, typer.Option(metavar="TAG", help="language of the source, for models of several languages")
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(metavar="TAG", help="language of the target, for models of several languages")
    ] = None,
    *,
    corpus: "Corpus",
) -> None:
    """Select the pairs of a corpus that are worth training on. Rules drop pairs; models rank the others.

    Rules drop empty sides, wrong languages, copies, odd lengths, duplicates, pairs whose numbers, placeholders or tags
    differ, and lines that do not belong together. Where lines are missing on one side, the others find their partners.
    With --model, --reverse and --share 0.9, the tenth that the models find least likely is dropped, too.

    Example: transformer filter corpus.en corpus.de --output clean.tsv --dropped dropped.tsv
    """
    allowed = parse_reasons(allow)
    if (model is None) != (share is None):
        raise ConfigError("--model and --share go together: the model ranks the pairs, and the best share is kept")
    if reverse is not None and model is None:
        raise ConfigError("--reverse has no effect without --model; add the model from source to target")
    for path in filter(None, (output_path, dropped_path)):
        _writer_of(path)
    check_files(named_files(corpus), [output_path, dropped_path])
    ranking = None
    if model is not None and share is not None:
        ranking = Ranking(model, reverse, share, languages_of(source_language, target_language))
    write_selection(corpus, output_path, dropped_path, allowed, ranking)


def parse_reasons(allow: str) -> list[str]:
    """Returns the reasons that --allow names.

    Raises:
        ConfigError: One is unknown.
    """
    from transformer.data.quality.selection import REASONS  # loads numpy

    allowed = [reason.strip() for reason in allow.split(",") if reason.strip()]
    if unknown := [reason for reason in allowed if reason not in REASONS]:
        raise ConfigError(f"--allow {unknown[0]!r} is unknown; choose from {', '.join(REASONS)}")
    return allowed


def write_selection(
    corpus: "Corpus", output_path: Path, dropped_path: Path | None, allowed: list[str], ranking: Ranking | None
) -> None:
    """Writes the pairs that are kept, and those that are dropped; prints how many.

    Args:
        corpus: Corpus of the pairs.
        output_path: File of the pairs that are kept.
        dropped_path: File of the other pairs; None for no file.
        allowed: Reasons for which nothing is dropped.
        ranking: Models that rank the pairs, and the share to keep of those that no rule drops; None without ranks.

    Raises:
        DataError: No pair is left.
    """
    from transformer.data.quality.selection import REASONS  # loads numpy

    writers = [_writer_of(path) for path in (output_path, dropped_path) if path is not None]
    counts = Counter[str]()
    with (
        open_output(output_path, whole=True) as kept,
        open_output(dropped_path, whole=True) if dropped_path else nullcontext() as dropped,
        two_texts(corpus, named_files(corpus)) as (source, target),
    ):
        for pair in _judged(source, target, allowed, ranking):
            counts[pair.reason] += 1
            if not pair.reason:
                kept.write(writers[0](pair, dropped=False))
            elif dropped is not None:
                dropped.write(writers[1](pair, dropped=True))
    _print_counts(counts, REASONS)
    if not counts[""]:
        raise DataError("no pair is left; --dropped FILE shows the reasons, and --allow REASONS keeps pairs")


def _judged(source: Path, target: Path, allowed: list[str], ranking: Ranking | None) -> "Iterator[JudgedPair]":
    """Yields the pairs, those with a low rank among the dropped ones."""
    from transformer.data.quality.selection import judge_pairs

    with progress_bar("lines judged") as advance:
        judged = judge_pairs(source, target, allowed=allowed, progress=advance)
        if ranking is None:
            yield from judged
            return
        pairs = list(judged)
    yield from _ranked(pairs, ranking)


def _ranked(pairs: "list[JudgedPair]", ranking: Ranking) -> "Iterator[JudgedPair]":
    """Yields the pairs; of those that no rule drops, all but the best share are dropped."""
    from transformer.pipelines.auto import load_translator  # loads torch
    from transformer.pipelines.translation.filtering import dual_cross_entropies

    forward = load_translator(obtain_model(ranking.model), precision="float32", **ranking.languages)
    source, target = ranking.languages.get("source_language"), ranking.languages.get("target_language")
    backward = None
    if ranking.reverse is not None:
        backward = load_translator(
            obtain_model(ranking.reverse), precision="float32", source_language=target, target_language=source
        )
    candidates = [number for number, pair in enumerate(pairs) if not pair.reason]
    scores = dict[int, float]()
    with progress_bar("pairs scored", len(candidates)) as advance:
        remaining = iter(candidates)
        while chunk := list(islice(remaining, CHUNK_PAIRS)):
            texts = [(pairs[number].source, pairs[number].target) for number in chunk]
            scores |= zip(chunk, dual_cross_entropies(forward, backward, texts), strict=True)
            advance(len(chunk))
    kept = {*sorted(candidates, key=scores.__getitem__)[: round(ranking.share * len(candidates))]}
    for number, pair in enumerate(pairs):
        yield pair if pair.reason or number in kept else replace(pair, reason=LOW_SCORE)


def _writer_of(path: Path) -> "Callable[..., bytes]":
    """Returns the function that formats a pair for a file.

    Raises:
        ConfigError: The name of the file ends otherwise.
    """
    writers = {".tsv": _as_tsv, ".jsonl": _as_json}
    if file_format(str(path)) not in writers:
        raise ConfigError(f"{path} ends in neither of .tsv and .jsonl; rename it")
    return writers[file_format(str(path))]


def _as_tsv(pair: "JudgedPair", *, dropped: bool) -> bytes:
    texts = [text.replace("\t", " ") for text in (pair.source, pair.target)]
    return "\t".join([pair.reason, str(pair.line), *texts] if dropped else texts).encode() + b"\n"


def _as_json(pair: "JudgedPair", *, dropped: bool) -> bytes:
    facts = {"source": pair.source, "target": pair.target}
    facts = {"reason": pair.reason, "line": pair.line, **facts} if dropped else facts
    return json.dumps(facts, ensure_ascii=False).encode() + b"\n"


def _print_counts(counts: Counter[str], reasons: "dict[str, str]") -> None:
    """Prints how many pairs were kept, and how many were dropped for each reason."""
    total, kept = counts.total(), counts[""]
    say(f"{counted(total, 'pair')}: {kept:,} kept, {total - kept:,} dropped ({1 - kept / max(1, total):.2%})")
    texts = {**reasons, LOW_SCORE: "least likely by the models"}
    width = max((len(reason) for reason in counts), default=0)
    for reason, count in counts.most_common():
        if reason:
            say(f"  {reason:{width}}  {count:>9,}  {texts[reason]}")
