"""`transformer classify`: classifies texts or images."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.arguments import JsonOption, choose_format
from transformer.cli.embed import read_texts, report_left_out
from transformer.cli.encoder_shards import LineForm, ShardedEncoding, TableForm, report_truncated
from transformer.cli.files import check_files, check_image_file, check_readable
from transformer.cli.generate import PrecisionOption
from transformer.cli.hub import obtain_model
from transformer.cli.loading import load_pipeline
from transformer.cli.outputs import open_output
from transformer.cli.parquet_shards import TableColumns, Values, refuse_for_tables, takes_columns
from transformer.cli.progress import progress_bar, progress_bar_beside
from transformer.cli.search import DeviceOption, SpecialTokensOption
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.translate import InvalidOption, ModelArgument, OutputOption, invalid_choice
from transformer.cli.verbosity import prompt_on_terminal, takes_verbosity
from transformer.errors import ConfigError, DataError, printable

if TYPE_CHECKING:
    from transformer.pipelines.classification import ImageClassifier, Label, TextEncoder
    from transformer.text.lines import Invalid

CHUNK = 256
"""Number of texts that are sorted by length together, of which shards have multiples."""


@takes_verbosity
@takes_sharding
@takes_columns
def classify(
    model: ModelArgument,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT|IMAGE]...", help="texts or image files; --input if not given")
    ] = None,
    input_path: Annotated[
        Path | None, typer.Option("--input", help="file of texts, one per line; standard input if no texts are given")
    ] = None,
    output_path: OutputOption = None,
    output_format: Annotated[
        Literal["text", "jsonl"] | None,
        typer.Option("--format", help="text (default), or jsonl: one object per input, with all probabilities"),
    ] = None,
    as_json: JsonOption = False,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            help="print the accuracy on labelled examples: a file of text<TAB>label, or a folder or IDX file of images"
        ),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="with --evaluate: IDX file with the labels of the images")] = None,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
    invalid_utf8: InvalidOption = "error",
    *,
    sharding: ShardingOptions,
    columns: TableColumns,
) -> None:
    """Print the label of each text or image with its probability, or the accuracy with --evaluate.

    Example: transformer classify runs/sentiment "a gripping , funny film"
    """
    check_files([input_path, labels], [None if sharding else output_path])
    _check_choices(arguments, input_path, evaluate, labels, output_path or output_format)
    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    is_table, invalid = columns.reads_table(input_path, sharding), invalid_choice(invalid_utf8)
    refuse_for_tables({"--json": chosen == "jsonl", "--invalid-utf8": invalid == "replace"} if is_table else {})
    unsupported = {"a text": arguments, "--evaluate": evaluate}
    paths = sharding.check([input_path], "--input FILE", output_path, unsupported) if sharding else None
    from transformer.bundle.kind import model_kind
    from transformer.pipelines.classification import ImageClassifier, TextEncoder  # loads torch

    if model_kind(obtain_model(model)) == "image encoder":
        _check_images(arguments or [], input_path, evaluate, labels)
    else:
        _check_texts(arguments or [])
    load = partial(
        load_pipeline, model, "classifier", precision=precision, device=device, special_tokens=special_tokens
    )
    if paths is not None:
        form = _table_form(columns) if is_table else _line_form(chosen, invalid)
        options = precision, special_tokens, device, chosen
        encoding = ShardedEncoding("classify", model, options, lambda: load(TextEncoder), CHUNK)
        encoding.run(sharding, paths[0][0], paths[1], form)
        return
    pipeline = load(TextEncoder, ImageClassifier)
    if evaluate is not None:
        _evaluate(pipeline, *_predict(pipeline, evaluate, labels, invalid_utf8), as_json=as_json)
        return
    if not arguments and input_path is None:
        prompt_on_terminal("type one text per line; Ctrl-D ends")
    _write_labels(pipeline, arguments or read_texts(input_path, invalid_utf8), output_path, chosen)


def _check_choices(
    arguments: Sequence[str] | None, input_path: Path | None, evaluate: Path | None, labels: Path | None, output: object
) -> None:
    """Checks that the inputs do not contradict each other.

    Args:
        arguments: Texts or images.
        input_path: File of texts.
        evaluate: Labelled examples.
        labels: Labels of images.
        output: Path or format of the output.

    Raises:
        ConfigError: Two of them were given, or an option has no effect.
        DataError: The labelled examples cannot be read.
    """
    if evaluate is not None:
        check_readable(evaluate, may_be_folder=True)
        if arguments or input_path or output:
            raise ConfigError(
                "--evaluate reads only labelled examples; leave out texts, --input, --output and --format"
            )
    if labels is not None and evaluate is None:
        raise ConfigError("--labels has no effect without --evaluate; add --evaluate IMAGES")
    if arguments and input_path is not None:
        raise ConfigError("texts as arguments and --input are mutually exclusive; give one of them")


def _table_form(columns: TableColumns) -> TableForm:
    """Returns labels and their probabilities as columns."""
    import pyarrow as pa

    def encode(encoder: "TextEncoder", texts: Sequence[str]) -> Iterable[Values]:
        return ((label.name, label.probability) for label in encoder.classify(texts))

    return TableForm(columns, encode, pa.schema([("label", pa.string()), ("probability", pa.float64())]))


def _line_form(kind: str, invalid: "Invalid") -> LineForm:
    """Returns labels as lines, as without shards."""
    return LineForm(
        invalid,
        lambda encoder, lines: map(partial(_format_label, kind=kind), lines, encoder.classify(lines)),
        lambda encoder: _no_label(kind),
        suffix=".jsonl" if kind == "jsonl" else ".txt",
    )


def _write_labels(
    pipeline: "TextEncoder | ImageClassifier", items: Sequence[str], output_path: Path | None, output_format: str
) -> None:
    """Writes the label of each text or image as soon as it is known."""
    from transformer.pipelines.classification import TextEncoder

    with open_output(output_path) as sink, progress_bar_beside(output_path, "inputs", len(items)) as done:
        for chunk in _chunks(items):
            for item, label in zip(chunk, pipeline.classify(chunk), strict=True):
                sink.write(_format_label(item, label, output_format))
            done(len(chunk))
    if isinstance(pipeline, TextEncoder):
        report_truncated(pipeline)


def _check_images(
    arguments: Sequence[str], input_path: Path | None, evaluate: Path | None, labels: Path | None
) -> None:
    """Checks the inputs of a model of images, before it is loaded.

    Raises:
        ConfigError: Images are missing, or texts came instead.
        DataError: A file is missing, a folder, or not an image; or an IDX file comes without labels.
    """
    if evaluate is not None:
        if not evaluate.is_dir() and labels is None:
            raise DataError(f"{evaluate} is not a folder; for an IDX file, give --labels too")
        return
    if not arguments:
        problem = f"{input_path} holds texts, but the model reads images" if input_path else "images are missing"
        raise ConfigError(f"{problem}; give image files as arguments")
    for argument in arguments:
        check_image_file(Path(argument))


def _check_texts(arguments: Sequence[str]) -> None:
    """Checks that texts are UTF-8.

    Raises:
        DataError: One of them is not.
    """
    from transformer.text.lines import check_utf8

    for text in arguments:
        check_utf8(text, "a text")


def _format_label(item: str, label: "Label", kind: str) -> bytes:
    if kind == "jsonl":
        fields = {"input": item, "label": label.name, "probabilities": label.probabilities}
        row = json.dumps(fields, ensure_ascii=False)
    else:
        row = f"{printable(label.name)}\t{label.probability:.4f}\t{item}"
    return row.encode(errors="surrogateescape") + b"\n"


def _no_label(kind: str) -> bytes:
    """Returns the result of a line that cannot be read."""
    return b'{"input": null, "label": null, "probabilities": null}\n' if kind == "jsonl" else b"\tnan\t\n"


def _chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    yield from (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def _evaluate(
    pipeline: "TextEncoder | ImageClassifier", references: Sequence[str], predicted: Sequence[str], *, as_json: bool
) -> None:
    """Prints the share of labels that were predicted."""
    from transformer.pipelines.classification import TextEncoder

    correct, n = sum(name == label for name, label in zip(predicted, references, strict=True)), len(references)
    if as_json:
        typer.echo(json.dumps({"accuracy": correct / n, "correct": correct, "examples": n}))
    else:
        typer.echo(f"accuracy {100 * correct / n:.2f} %  ({correct:,} of {n:,})")
    if isinstance(pipeline, TextEncoder):
        report_truncated(pipeline)


def _predict(
    pipeline: "TextEncoder | ImageClassifier", path: Path, labels: Path | None, invalid_utf8: str
) -> tuple[list[str], list[str]]:
    """Returns the labels of the examples, and those that the model predicts.

    Raises:
        DataError: The examples are missing, or the model does not know one of their labels.
    """
    import numpy as np

    from transformer.data.images import IdxImages, ImageFolder
    from transformer.data.labelled import label_ids, read_rows
    from transformer.data.readers import PairCounts
    from transformer.pipelines.classification import TextEncoder

    if isinstance(pipeline, TextEncoder):
        counts = PairCounts()
        rows = list(read_rows([path], None, ("text", "label"), invalid_choice(invalid_utf8), counts))
        report_left_out(counts)
        if not rows:
            raise DataError(f"{path} is empty; give a file with a text, a tab and a label per line")
        label_ids([label for _, label in rows], pipeline.config.labels, str(path))
        predicted: list[str] = []
        with progress_bar("texts", len(rows)) as done:
            for chunk in _chunks([text for text, _ in rows]):
                predicted += [label.name for label in pipeline.classify(chunk)]
                done(len(chunk))
        return [label for _, label in rows], predicted
    names = pipeline.config.labels
    images = (
        ImageFolder(path, pipeline.processor) if labels is None else IdxImages(path, labels, names, pipeline.processor)
    )
    label_ids(images.names, names, str(path))
    predictions: list[str] = []
    with progress_bar("images", len(images.labels)) as done:
        for start in range(0, len(images.labels), CHUNK):
            numbers = np.arange(start, min(start + CHUNK, len(images.labels)))
            predictions += [label.name for label in pipeline.classify_pixels(images.take(numbers))]
            done(len(numbers))
    return [images.names[number] for number in images.labels.tolist()], predictions
