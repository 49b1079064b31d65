"""`transformer embed`: embeds texts as vectors."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from transformer.cli.arguments import TextsArgument, argument_lines
from transformer.cli.encoder_shards import LineForm, ShardedEncoding, TableForm, report_truncated
from transformer.cli.files import check_files
from transformer.cli.generate import PrecisionOption
from transformer.cli.loading import load_pipeline
from transformer.cli.outputs import open_output
from transformer.cli.parquet_shards import TableColumns, Values, refuse_for_tables, takes_columns
from transformer.cli.progress import progress_bar
from transformer.cli.search import DeviceOption, SpecialTokensOption
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import prompt_on_terminal, say, takes_verbosity
from transformer.errors import ConfigError, escape_controls

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from transformer.data.readers import PairCounts
    from transformer.pipelines.classification import TextEncoder
    from transformer.sharding.job import Job
    from transformer.text.lines import Invalid

TOP = 10
"""Default number of lines that --nearest prints."""
CHUNK = 1024
"""Number of texts that are sorted by length together, of which shards have multiples."""


@takes_verbosity
@takes_sharding
@takes_columns
def embed(
    model: ModelArgument,
    texts: TextsArgument = None,
    input_path: Annotated[
        Path | None, typer.Option("--input", help="file of texts, one per line; standard input if not given")
    ] = None,
    output_path: Annotated[
        Path | None,
        typer.Option(
            "--output", help="file to write: float32 array if .npy, else JSON lines; standard output if not given"
        ),
    ] = None,
    nearest: Annotated[
        str | None, typer.Option(metavar="TEXT", help="print the lines most similar to this text instead of vectors")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="with --nearest: number of lines; default: 10")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON, one object per line, also with --nearest and --evaluate")
    ] = False,
    evaluate: Annotated[
        Path | None,
        typer.Option(help="file of texts with the same meaning, first<TAB>second; print how often the pair is nearest"),
    ] = None,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
    invalid_utf8: InvalidOption = "error",
    *,
    sharding: ShardingOptions,
    columns: TableColumns,
) -> None:
    """Embed each line as a vector of length 1; the dot product of two vectors is their cosine similarity.

    Example: transformer embed minilm --input questions.txt --nearest "How do I reset my password?"
    """
    lines = argument_lines(texts, input_path)
    if not sharding:
        check_files([input_path or evaluate], [output_path])
    _check_nearest(nearest, top, output_path)
    _check_formats(evaluate, lines or input_path or output_path or nearest is not None, output_path, as_json=as_json)
    load = partial(load_encoder, model, precision, device, special_tokens=special_tokens)
    if sharding:
        unsupported = {"a text": texts, "--nearest": nearest is not None, "--evaluate": evaluate}
        options = precision, special_tokens, device
        (path,), folder = sharding.check([input_path], "--input FILE", output_path, unsupported)
        _embed_shards(sharding, columns, path, folder, model, load, options, invalid_utf8, as_json=as_json)
        return
    columns.reads_table(input_path, sharding)
    encoder = load()
    if evaluate is not None:
        _evaluate(encoder, evaluate, invalid_utf8, as_json=as_json)
        return
    if lines is None and input_path is None:
        prompt_on_terminal("type one text per line; Ctrl-D ends")
    lines = read_texts(input_path, invalid_utf8) if lines is None else lines
    vectors = _embed_lines(encoder, lines)
    report_truncated(encoder)
    if nearest is not None:
        _print_nearest(lines, vectors @ encoder.embed([nearest])[0], top or TOP, as_json=as_json)
    else:
        _write_vectors(output_path, lines, vectors)


def _check_formats(evaluate: Path | None, others: object, output_path: Path | None, *, as_json: bool) -> None:
    """Checks --evaluate and --json.

    Raises:
        ConfigError: Inputs or outputs contradict each other.
    """
    if evaluate is not None and others:
        raise ConfigError(
            "--evaluate reads text pairs and prints the accuracy; leave out --input, --output and --nearest"
        )
    if as_json and output_path is not None and output_path.suffix == ".npy":
        raise ConfigError(f"{output_path} is to be an array, but --json asks for JSON; leave out --json")


def _check_nearest(nearest: str | None, top: int | None, output_path: Path | None) -> None:
    """Checks --nearest, and the options that go with it or not.

    Raises:
        ConfigError: An option has no effect.
        DataError: The text is not UTF-8.
    """
    if nearest is None:
        if top is not None:
            raise ConfigError("--top has no effect without --nearest; add --nearest TEXT")
        return
    if output_path is not None:
        raise ConfigError("--nearest prints lines instead of vectors; leave out --output")
    from transformer.text.lines import check_utf8

    check_utf8(nearest, "the text of --nearest")


def _print_nearest(lines: Sequence[str], cosines: "Float[np.ndarray, 'n']", top: int, *, as_json: bool) -> None:
    """Prints the lines with the highest cosine similarity, best first."""
    import numpy as np

    order: list[int] = np.argsort(-cosines, kind="stable")[:top].tolist()
    for index in order:
        if as_json:
            record = {"line": index + 1, "text": lines[index], "cosine": round(float(cosines[index]), 7)}
            typer.echo(json.dumps(record, ensure_ascii=False))
        else:
            typer.echo(f"{cosines[index]:.4f}\t{escape_controls(lines[index])}")


def _write_vectors(output_path: Path | None, lines: Sequence[str], vectors: "Float[np.ndarray, 'n D']") -> None:
    """Writes the vectors as an array if the name of the file asks for one, otherwise as JSON lines with their texts."""
    import numpy as np

    with open_output(output_path, whole=True) as sink:
        if output_path is not None and output_path.suffix == ".npy":
            array = io.BytesIO()  # `np.save` would bypass the buffer of a file, and thus its errors
            np.save(array, vectors, allow_pickle=False)
            sink.write(array.getbuffer())
            return
        for text, vector in zip(lines, vectors.tolist(), strict=True):
            sink.write(_as_json(text, vector))


def _as_json(text: str | None, vector: Sequence[float] | None) -> bytes:
    rounded = None if vector is None else [round(value, 7) for value in vector]
    return json.dumps({"text": text, "embedding": rounded}, ensure_ascii=False).encode() + b"\n"


def _embed_shards(
    sharding: ShardingOptions, columns: TableColumns, path: Path, folder: Path, model: Path,
    load: "Callable[[], TextEncoder]", options: tuple[object, ...], invalid_utf8: str, *, as_json: bool,
) -> None:  # fmt: skip
    """Writes the vectors of a file in shards; the name of the joined file tells whether they are an array."""
    invalid, is_array = invalid_choice(invalid_utf8), sharding.join is not None and sharding.join.suffix == ".npy"
    if columns.reads_table(path, sharding):
        refuse_for_tables({"--json": as_json, "--invalid-utf8": invalid == "replace"})
        form = _table_form(columns)
    else:
        form = _line_form(load, invalid, is_array=is_array)
    ShardedEncoding("embed", model, (*options, is_array), load, CHUNK).run(sharding, path, folder, form)


def _table_form(columns: TableColumns) -> TableForm:
    """Returns vectors as lists of float32 in the column `embedding`."""
    import pyarrow as pa

    def encode(encoder: "TextEncoder", texts: Sequence[str]) -> Iterable[Values]:
        return ((vector,) for vector in encoder.embed(texts))

    return TableForm(columns, encode, pa.schema([("embedding", pa.list_(pa.float32()))]))


def _line_form(load: "Callable[[], TextEncoder]", invalid: "Invalid", *, is_array: bool) -> LineForm:
    """Returns vectors as rows of an array, or as JSON lines with their texts."""
    import numpy as np

    def encode(encoder: "TextEncoder", lines: Sequence[str]) -> Iterable[bytes]:
        vectors = encoder.embed(lines)
        if is_array:
            return (vector.tobytes() for vector in vectors)
        return map(_as_json, lines, vectors.tolist())

    def unreadable(encoder: "TextEncoder") -> bytes:
        return np.full(encoder.config.d_model, np.nan, np.float32).tobytes() if is_array else _as_json(None, None)

    def write_array(job: "Job", file: BinaryIO) -> None:
        n_vectors = job.n_items
        d_model = job.n_bytes // (4 * n_vectors) if n_vectors else load().config.d_model
        facts = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**facts, "shape": (n_vectors, d_model)})
        job.write_results(file)

    end, write_joined = (".f32", write_array) if is_array else (".jsonl", None)
    return LineForm(invalid, encode, unreadable, end, write_joined)


def _embed_lines(encoder: "TextEncoder", lines: Sequence[str]) -> "Float[np.ndarray, 'n D']":
    """Returns the vectors of texts, and shows progress."""
    import numpy as np

    parts = [encoder.embed([])]
    with progress_bar("texts", len(lines)) as done:
        for start in range(0, len(lines), CHUNK):
            parts.append(encoder.embed(lines[start : start + CHUNK]))
            done(len(parts[-1]))
    return np.concatenate(parts)


def _evaluate(encoder: "TextEncoder", path: Path, invalid_utf8: str, *, as_json: bool) -> None:
    """Prints how often the nearest text is the paired one, in both directions.

    Raises:
        DataError: The file is empty.
    """
    from transformer.data.labelled import read_rows
    from transformer.data.readers import PairCounts
    from transformer.errors import DataError
    from transformer.pipelines.classification import count_nearest_matches
    from transformer.run.tasks.neighbours import COLUMNS

    counts = PairCounts()
    rows = list(read_rows([path], None, COLUMNS, invalid_choice(invalid_utf8), counts))
    report_left_out(counts)
    if not rows:
        raise DataError(f"{path} is empty; give a file with two texts of the same meaning per line")
    first, second = (_embed_lines(encoder, [row[side] for row in rows]) for side in range(2))
    matches_by_side = {"first": count_nearest_matches(first, second), "second": count_nearest_matches(second, first)}
    if as_json:
        typer.echo(json.dumps({"pairs": len(rows), **matches_by_side}))
    for name, matches in () if as_json else matches_by_side.items():
        typer.echo(
            f"{name} texts nearest to their pair: {100 * matches / len(rows):.2f} %  ({matches:,} of {len(rows):,})"
        )
    report_truncated(encoder)


def load_encoder(model: Path, precision: str, device: str, *, special_tokens: bool) -> "TextEncoder":
    """Loads a text encoder.

    Raises:
        ConfigError: The model is not a text encoder.
    """
    from transformer.pipelines.classification import TextEncoder  # loads torch

    return load_pipeline(
        model, "text encoder", TextEncoder, precision=precision, device=device, special_tokens=special_tokens
    )


def read_texts(path: Path | None, invalid_utf8: str) -> list[str]:
    """Reads the lines of a file, or of standard input; overlong ones are cut, as any text that exceeds the model."""
    from transformer.text.lines import bounded_lines, decode_lines, read_lines

    invalid = invalid_choice(invalid_utf8)
    if path is None:
        lines = bounded_lines(sys.stdin.buffer)
        return list(decode_lines(lines, "standard input", invalid=invalid, overlong="cut"))
    return list(read_lines(path, invalid=invalid, overlong="cut"))


def report_left_out(counts: "PairCounts") -> None:
    """Reports the number of rows that were left out on standard error."""
    if counts.left_out:
        say(f"note: rows left out: {counts.describe_left_out()}")
