"""`transformer backtranslate`: makes training pairs from text in the language that a model is to write."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.files import check_files
from transformer.cli.pairs_file import PairsFile, with_seed
from transformer.cli.parquet_shards import SUFFIX, TableColumns, takes_columns
from transformer.cli.search import (
    SourceLanguageOption,
    TargetLanguageOption,
    languages_of,
    takes_loading,
    takes_search,
)
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.shards import ShardOption, lines_of, parse_shard
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.translate_shards import pairs_in_shards, translation_settings
from transformer.cli.verbosity import takes_verbosity
from transformer.data.config import file_format
from transformer.errors import ConfigError
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading


@takes_verbosity
@takes_loading
@takes_search
@takes_sharding
@takes_columns
def backtranslate(
    model: ModelArgument,
    text: Annotated[
        Path, typer.Argument(metavar="TEXT", help="text in the language that the model to be trained will write")
    ],
    output_path: Annotated[
        Path,
        typer.Option(
            "--output", help="file of the pairs: .tsv, translation and text in columns; with --shards, a folder"
        ),
    ],
    tag: Annotated[
        str,
        typer.Option(help="word in front of each translation, which tells the model where it comes from; '' for none"),
    ] = "<BT>",
    shard: ShardOption = None,
    invalid_utf8: InvalidOption = "error",
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    *,
    loading: "Loading",
    search: Search,
    sharding: ShardingOptions,
    columns: TableColumns,
) -> None:
    """Translate text back into the source language, as further training pairs for the other direction.

    MODEL translates from the language of TEXT. Each line becomes a pair, its translation being the source. The same
    command continues where an earlier one was stopped. To train on the file, name it in data.pairs.

    Example: transformer backtranslate de-en news.de --output back.tsv --sample --temperature 0.8
    """
    _check_name(sharding.join if sharding else output_path, is_table=columns.reads_table(text, sharding))
    if tag.split() != [tag] * bool(tag):
        raise ConfigError(f"--tag {tag!r} is not a word without spaces; choose another")
    languages, invalid = languages_of(source_language, target_language), invalid_choice(invalid_utf8)
    if sharding:
        paths, folder = sharding.check([text], "a text", output_path, {"--shard": shard})
        pairs_in_shards(
            "backtranslate", sharding, paths, folder,
            translation_settings(model, search, loading, languages, tag=tag, invalid=invalid), search,
            lambda seeded: loading.translator(model, seeded, **languages),
            lambda row, translation: (_tagged(translation.text, tag), row[0]), invalid, columns,
        )  # fmt: skip
        return
    check_files([text], [output_path])
    from transformer.data.fingerprint import file_checksum

    part = parse_shard(shard)
    facts = {
        "model": str(model), "text": file_checksum(text), "tag": tag, "options": repr(sorted(loading.options.items())),
        "search": repr(with_seed(search, 0)), "seed": search.sampling.seed if search.sampling else 0,
        **({"shard": str(part)} if part else {}),
    }  # fmt: skip
    facts |= {name: tag for name, tag in languages.items() if tag}
    pairs = PairsFile.begin(output_path, facts)
    first, lines = lines_of(part, text, invalid)
    translator = loading.translator(model, with_seed(search, pairs.facts["seed"]), **languages)
    with closing(translator):
        pairs.write(translator, lines, lambda line, translation: (_tagged(translation.text, tag), line), first)


def _check_name(output: Path | None, *, is_table: bool) -> None:
    """Checks that the name of the table of pairs has the end of its format.

    Raises:
        ConfigError: It has not.
    """
    end = SUFFIX if is_table else ".tsv"
    if output is not None and (file_format(str(output)) != end or output.suffix != end):
        raise ConfigError(f"{output} does not end in {end}; rename it")


def _tagged(translation: str, tag: str) -> str:
    """Returns the source of a pair; an empty line has no translation, and training drops the pair."""
    return f"{tag} {translation}".strip() if translation.strip() else ""
