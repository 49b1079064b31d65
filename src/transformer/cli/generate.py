"""`transformer generate`: continues a text with a language model."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.loaded import loaded
from transformer.cli.progress import counted_beside
from transformer.cli.search import takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice, refuse_same, written_to
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.pipelines.text_generation import Continuation, Generator

PrecisionOption = Annotated[
    Literal["auto", "float32", "bf16", "int8"],
    typer.Option(
        help="of the weights; auto: int8 (bf16 for texts as a whole) where this processor is fast at it, else float32"
    ),
]

MAX_TOKENS = 200


@takes_search
def generate(
    model: ModelArgument,
    prompt: Annotated[str | None, typer.Argument(help="what the text begins with; empty begins anew")] = None,
    input_path: Annotated[Path | None, typer.Option("--input", help="file of prompts, one a line")] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="several continuations of a beam or of --sample")] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: an object a prompt, with scores")
    ] = "text",
    precision: PrecisionOption = "auto",
    invalid_utf8: InvalidOption = "error",
    *,
    search: "Search",
) -> None:
    """Write on from a prompt with a language model; greedy, or drawn with --sample.

    A single prompt is written as it grows. With --input each line is a prompt, and each continuation one line: line
    ends within it become spaces.

    Example: transformer generate runs/shakespeare "ROMEO:" --sample --temperature 0.8 --max-tokens 300
    """
    from transformer.text.lines import check_utf8, read_lines

    if (prompt is None) == (input_path is None):
        raise ConfigError("give a prompt, or a file of them with --input; an empty prompt is ''")
    if prompt is not None:
        check_utf8(prompt, "the prompt")
    refuse_same([input_path], [output_path])
    max_tokens = search.max_tokens or MAX_TOKENS
    generator = _loaded(model, precision, replace(search, n_best=n_best) if n_best is not None else search)
    with written_to(output_path) as sink:
        if prompt is not None and output_format == "text" and generator.search.beam == 1:
            texts = generator.stream(prompt, max_tokens=max_tokens)
            sink.write(prompt.encode())
            for text in texts:
                sink.write(text.encode())
                sink.flush()
            sink.write(b"\n")
            return
        invalid = invalid_choice(invalid_utf8)
        prompts = [prompt] if prompt is not None else list(read_lines(input_path or Path(), invalid=invalid))
        with counted_beside(output_path, "prompts", len(prompts)) as done:
            results = zip(prompts, generator.each(prompts, max_tokens=max_tokens), strict=True)
            for number, (text, continuations) in enumerate(results, start=1):
                sink.write(
                    _shown(number, text, continuations, output_format, is_single=prompt is not None).encode() + b"\n"
                )
                sink.flush()
                done(1)


def _loaded(model: Path, precision: str, search: "Search") -> "Generator":
    from transformer.pipelines.text_generation import Generator  # loads torch

    generator = loaded(model, Generator, "language model", precision=precision, search=search)
    print(generator.description, file=sys.stderr)
    return generator


def _shown(number: int, prompt: str, continuations: "list[Continuation]", kind: str, *, is_single: bool) -> str:
    if kind == "jsonl":
        fields = [{"text": c.text, "score": c.score, "finish": "end" if c.finished else "limit"} for c in continuations]
        return json.dumps({"line": number, "prompt": prompt, "continuations": fields}, ensure_ascii=False)
    if is_single:
        return "\n---\n".join(prompt + c.text for c in continuations)
    return "\n".join(" ".join((prompt + c.text).splitlines()) for c in continuations)
