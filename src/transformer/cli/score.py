"""`transformer score`: scores existing translations."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.arguments import JsonOption, choose_format
from transformer.cli.chunks import CHUNK_LINES
from transformer.cli.files import check_files
from transformer.cli.hub import obtain_model
from transformer.cli.notes import collect_notes
from transformer.cli.outputs import open_output
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
from transformer.cli.sharded_lines import DoRows, LineWork, Result, Row
from transformer.cli.sharding import (
    Settings,
    ShardedCommand,
    ShardingOptions,
    model_identity,
    takes_sharding,
    work_in_shards,
)
from transformer.cli.translate import InvalidOption, ModelArgument, OutputOption, invalid_choice
from transformer.cli.verbosity import QuietOption, VerboseOption, takes_verbosity
from transformer.errors import ConfigError
from transformer.options.search import GREEDY

if TYPE_CHECKING:
    from transformer.pipelines.translation.scoring import PairScore
    from transformer.pipelines.translation.translator import Translator
    from transformer.text.lines import Invalid

    FormatScore = Callable[[int, PairScore], bytes]


@takes_verbosity
@takes_sharding
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
) -> None:
    """Score translations line by line: the log-probability of their tokens in nats, including EOS.

    Useful to rank translations of a sentence, or to find the worst pairs of a corpus. A line that is too long for the
    model scores nan, and a note on standard error names it.

    Example: transformer score runs/first --source test.en --target test.de --per-token
    """
    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    invalid, search = invalid_choice(invalid_utf8), with_average(GREEDY, average, ensemble)
    languages = languages_of(source_language, target_language)
    format_score = _formatter(chosen, per_token=per_token)

    def load() -> "Translator":
        from transformer.pipelines.auto import load_translator  # loads torch

        obtain_model(model)
        return load_translator(
            model, search=search, ensemble=ensemble or (), precision="float32", device=device,
            special_tokens=special_tokens, **languages,
        )  # fmt: skip

    if sharding:
        needed = "--source FILE, --target FILE"
        paths, folder = sharding.check([source, target], needed, output_path, {"a text": texts})
        models = [model_identity(path) for path in (model, *(ensemble or ()))]
        settings: Settings = {
            "model": models, "search": repr(search), "options": repr((special_tokens, device, languages)),
            "format": repr((chosen, per_token, invalid)),
        }  # fmt: skip
        _score_shards(sharding, paths, folder, settings, load, format_score, invalid)
        return
    pairs = _pairs(texts, source, target, invalid)
    check_files([source, target] if source else [], [output_path])
    translator = load()
    with collect_notes(verbose=verbose, quiet=quiet) as notes, open_output(output_path) as sink:
        for number, result in enumerate(_scores(translator, pairs), start=1):
            sink.write(format_score(number, result))
            notes.add(number, result.flags)
            if number % CHUNK_LINES == 0:
                sink.flush()


def _scores(translator: "Translator", pairs: Iterator[tuple[str, str]]) -> "Iterator[PairScore]":
    """Yields the scores of pairs, of which as many are scored together as a shard begins at multiples of."""
    from transformer.pipelines.translation.scoring import score_pairs

    while chunk := list(islice(pairs, CHUNK_LINES)):
        yield from score_pairs(translator, chunk)


def _score_shards(
    sharding: ShardingOptions, paths: list[Path], folder: Path, settings: Settings, load: "Callable[[], Translator]",
    format_score: "FormatScore", invalid: "Invalid",
) -> None:  # fmt: skip
    """Scores pairs in shards; those that cannot be scored are set apart."""
    from transformer.pipelines.translation.scoring import PairScore
    from transformer.sharding.lines import TextFiles
    from transformer.text.lines import MAX_LINE_CHARACTERS
    from transformer.text.trees import is_treebank

    if is_treebank(paths[0]) or is_treebank(paths[1]):
        raise ConfigError("--shards divides text by lines, but the input holds trees; leave out --shards")

    def prepare(decided: Settings) -> DoRows:
        del decided
        translator = load()

        def do_rows(n_before: int, rows: Iterator[Row]) -> Iterator[Result]:
            pairs = ((source, target) for source, target in rows)
            for number, result in enumerate(_scores(translator, pairs), start=n_before + 1):
                reasons = () if result.token_scores else result.flags
                yield Result(format_score(number, result), "".join(f"line {number}: {flag}" for flag in reasons[:1]))

        return do_rows

    lines = LineWork(
        TextFiles(paths, CHUNK_LINES),
        MAX_LINE_CHARACTERS,
        invalid,
        lambda number: format_score(number, PairScore(math.nan, (), (), ("it cannot be read",))),
    )
    work_in_shards(
        sharding, lines.files, folder,
        ShardedCommand("score", settings, lambda decided: lines.by(prepare(decided))),
    )  # fmt: skip


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
