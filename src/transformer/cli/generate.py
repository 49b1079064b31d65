"""`transformer generate`: continues a text with a language model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.arguments import JsonOption, choose_format
from transformer.cli.fields import option
from transformer.cli.files import check_files
from transformer.cli.loading import load_pipeline
from transformer.cli.outputs import open_output
from transformer.cli.progress import progress_bar_beside
from transformer.cli.search import DeviceOption, SpecialTokensOption, takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, NBestOption, OutputOption, invalid_choice
from transformer.cli.verbosity import say, takes_verbosity
from transformer.errors import ConfigError
from transformer.options.search import Search
from transformer.options.translation import LoadingOptions, Precision

if TYPE_CHECKING:
    from transformer.pipelines.text_generation import Continuation, Generator

PrecisionOption = Annotated[Precision, option(LoadingOptions, "precision")]

MAX_TOKENS = 200


@takes_verbosity
@takes_search
def generate(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT]...", help="text to continue, or several; an empty one starts from scratch"),
    ] = None,
    input_path: Annotated[Path | None, typer.Option("--input", help="file of prompts, one per line")] = None,
    output_path: OutputOption = None,
    n_best: NBestOption = None,
    output_format: Annotated[
        Literal["text", "jsonl"] | None,
        typer.Option("--format", help="text (default), or jsonl: one object per prompt, with scores"),
    ] = None,
    as_json: JsonOption = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
    invalid_utf8: InvalidOption = "error",
    *,
    search: Search,
) -> None:
    """Continue a prompt with a language model, greedily or by sampling (--sample).

    The continuation of a single prompt is streamed, except with --beam or --format jsonl. With --input, each line is a
    prompt and each continuation is one line, in which line breaks become spaces. So it is with several prompts.

    Example: transformer generate runs/shakespeare "ROMEO:" --sample --temperature 0.8 --max-tokens 300
    """
    from transformer.text.lines import check_utf8, read_lines

    if (not texts) == (input_path is None):
        raise ConfigError("give either a prompt or a file of prompts with --input; an empty prompt is ''")
    for text in texts or ():
        check_utf8(text, "the prompt")
    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    prompt = texts[0] if texts and len(texts) == 1 else None
    check_files([input_path], [output_path])
    max_tokens = search.max_tokens or MAX_TOKENS
    search = replace(search, n_best=n_best) if n_best is not None else search
    generator = _load_generator(model, precision, device, search, special_tokens=special_tokens)
    with open_output(output_path) as sink:
        if prompt is not None and chosen == "text" and generator.search.beam == 1:
            pieces = generator.stream(prompt, max_tokens=max_tokens)
            sink.write(prompt.encode())
            for text in pieces:
                sink.write(text.encode())
                sink.flush()
            sink.write(b"\n")
            return
        invalid = invalid_choice(invalid_utf8)
        prompts = texts or list(read_lines(input_path or Path(), invalid=invalid))
        with progress_bar_beside(output_path, "prompts", len(prompts)) as done:
            results = zip(prompts, generator.each(prompts, max_tokens=max_tokens), strict=True)
            for number, (text, continuations) in enumerate(results, start=1):
                is_single = prompt is not None
                seed = search.sampling and search.sampling.seed
                written = _format_continuations(number, text, continuations, chosen, is_single=is_single, seed=seed)
                sink.write(written.encode() + b"\n")
                sink.flush()
                done(1)


def _load_generator(model: Path, precision: str, device: str, search: Search, *, special_tokens: bool) -> "Generator":
    from transformer.pipelines.text_generation import Generator  # loads torch

    generator = load_pipeline(
        model, "language model", Generator, precision=precision, device=device, search=search,
        special_tokens=special_tokens,
    )  # fmt: skip
    say(generator.description)
    return generator


def _format_continuations(
    number: int, prompt: str, continuations: "list[Continuation]", kind: str, *, is_single: bool, seed: int | None
) -> str:
    if kind == "jsonl":
        fields = [{"text": c.text, "score": c.score, "finish": "end" if c.finished else "limit"} for c in continuations]
        sampled = {} if seed is None else {"seed": seed}
        return json.dumps({"line": number, "prompt": prompt, **sampled, "continuations": fields}, ensure_ascii=False)
    if is_single:
        return "\n---\n".join(prompt + c.text for c in continuations)
    return "\n".join(" ".join((prompt + c.text).splitlines()) for c in continuations)
