"""`transformer score`: scores existing translations."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.arguments import JsonOption, choose_format
from transformer.cli.chunks import CHUNK_LINES
from transformer.cli.files import check_files
from transformer.cli.notes import collect_notes
from transformer.cli.outputs import open_output
from transformer.cli.parquet_shards import TableColumns, refuse_for_tables, takes_pair_columns
from transformer.cli.score_shards import Scorer, score_lines, score_table, scores
from transformer.cli.search import (
    AverageOption,
    DeviceOption,
    EnsembleOption,
    SourceLanguageOption,
    SpecialTokensOption,
    TargetLanguageOption,
    languages_of,
    with_average,
)
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.translate import InvalidOption, ModelArgument, OutputOption, invalid_choice
from transformer.cli.verbosity import QuietOption, VerboseOption, takes_verbosity
from transformer.errors import ConfigError
from transformer.options.search import GREEDY

if TYPE_CHECKING:
    from transformer.cli.score_shards import FormatScore
    from transformer.pipelines.translation.scoring import PairScore
    from transformer.text.lines import Invalid


@takes_verbosity
@takes_sharding
@takes_pair_columns
def score(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT TRANSLATION]", help="a text and its translation")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="source text, plain or compressed")] = None,
    target: Annotated[Path | None, typer.Option(help="its translation, aligned line by line")] = None,
    output_path: OutputOption = None,
    invalid_utf8: InvalidOption = "error",
    per_token: Annotated[
        bool, typer.Option("--per-token", help="divide by the number of tokens, to compare lines of different lengths")
    ] = False,
    output_format: Annotated[
        Literal["text", "jsonl"] | None,
        typer.Option("--format", help="text (default), or jsonl: one object per line, with all tokens"),
    ] = None,
    as_json: JsonOption = False,
    ensemble: EnsembleOption = None,
    average: AverageOption = None,
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    sharding: ShardingOptions,
    columns: TableColumns,
) -> None:
    """Score translations line by line: the log-probability of their tokens in nats, including EOS.

    Useful to rank translations of a sentence, or to find the worst pairs of a corpus. A line that is too long for the
    model scores nan, and a note on standard error names it.

    Example: transformer score runs/first --source test.en --target test.de --per-token
    """
    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    invalid, is_table = invalid_choice(invalid_utf8), columns.reads_table(source, sharding)
    search, languages = with_average(GREEDY, average, ensemble), languages_of(source_language, target_language)
    scorer = Scorer(model, ensemble or [], search, device, special_tokens, languages)
    format_score = _formatter(chosen, per_token=per_token)
    if is_table:
        refuse_for_tables({"--target": target, "--per-token": per_token, "--json": chosen == "jsonl",
                           "--invalid-utf8": invalid == "replace"})  # fmt: skip
        (path,), folder = sharding.check([source], "--source FILE", output_path, {"a text": texts})
        score_table(sharding, path, folder, scorer, columns)
        return
    if sharding:
        paths, folder = sharding.check([source, target], "--source FILE, --target FILE", output_path, {"a text": texts})
        score_lines(sharding, paths, folder, scorer, format_score, invalid, (chosen, per_token))
        return
    pairs = _pairs(texts, source, target, invalid)
    check_files([source, target] if source else [], [output_path])
    translator = scorer.load()
    with collect_notes(verbose=verbose, quiet=quiet) as notes, open_output(output_path) as sink:
        for number, result in enumerate(scores(translator, pairs), start=1):
            sink.write(format_score(number, result))
            notes.add(number, result.flags)
            if number % CHUNK_LINES == 0:
                sink.flush()


def _pairs(
    texts: Sequence[str] | None, source: Path | None, target: Path | None, invalid: "Invalid"
) -> Iterator[tuple[str, str]]:
    """Returns the pairs of texts to score.

    Raises:
        ConfigError: A side is missing, or given twice.
    """
    from transformer.data.readers import read_all_pairs
    from transformer.text.lines import check_utf8

    if texts and (source or target):
        raise ConfigError("texts as arguments and --source, --target are mutually exclusive; give one of them")
    if source is not None and target is not None:
        return iter(read_all_pairs(source, target, invalid=invalid))
    if not texts or len(texts) != 2:
        raise ConfigError("a side is missing; give --source FILE and --target FILE, or a text and its translation")
    for text in texts:
        check_utf8(text, "a text")
    return iter([(texts[0], texts[1])])


def _formatter(kind: str, *, per_token: bool) -> "FormatScore":
    """Returns the function that formats the number of a line and its score."""

    def as_text(number: int, result: "PairScore") -> bytes:
        del number
        return f"{result.per_token if per_token else result.score:.4f}\n".encode()

    return _as_json if kind == "jsonl" else as_text


def _as_json(number: int, result: "PairScore") -> bytes:
    """Returns a JSON object on one line; NaN becomes null."""
    score = result.score if result.token_scores else None
    tokens = [{"piece": piece, "score": value} for piece, value in zip(result.pieces, result.token_scores, strict=True)]
    per_token = result.per_token if result.token_scores else None
    fields = {"line": number, "score": score, "per_token": per_token, "flags": result.flags, "tokens": tokens}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
