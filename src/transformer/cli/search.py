"""Command-line options of the search and of the models."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from transformer.cli.kernel_note import note_missing_kernels
from transformer.errors import BundleError, ConfigError

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.pipelines.translation.terminology import Terminology
    from transformer.pipelines.translation.translator import Translator

Command = Callable[..., None]
Penalty = Literal["paper", "normalize"]
Stopping = Literal["early", "exhaustive"]
Split = Literal["auto", "sentence", "none"]


WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="number of parallel processes; default: one per thread, up to 8")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="device to compute on; auto: a GPU if there is one")
]
EnsembleOption = Annotated[
    list[Path] | None, typer.Option(help="further model to average predictions with; may be repeated")
]
SourceLanguageOption = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="language of the source, e.g. en or pt-BR; default: as the model records it"),
]
TargetLanguageOption = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="language of the target, e.g. de or zh-Hant; default: as the model records it"),
]
AverageOption = Annotated[
    Literal["log_probability", "probability"] | None,
    typer.Option(
        help="how an --ensemble averages: log_probability (default) favours tokens that all models accept, "
        "probability those that any model accepts"
    ),
]


def with_average(
    search: "Search", average: Literal["log_probability", "probability"] | None, ensemble: Sequence[Path] | None
) -> "Search":
    """Returns the search with the requested average.

    Raises:
        ConfigError: The ensemble is empty.
    """
    refuse_average(average, ensemble)
    return search if average is None else replace(search, average=average)


def language_of(option: str, tag: str | None) -> str | None:
    """Returns the language that an option names, in its canonical form; None if it was not given.

    Raises:
        ConfigError: The tag is not valid.
    """
    if tag is None:
        return None
    from transformer.text.languages import parse_language

    language = parse_language(tag)
    if language is None:
        raise ConfigError(f"{option}={tag!r} is not a language tag (BCP 47); write e.g. en, de or zh-Hant")
    return language


def refuse_average(average: str | None, ensemble: Sequence[Path] | None) -> None:
    """Rejects an average without an ensemble.

    Raises:
        ConfigError: The ensemble is empty.
    """
    if average is not None and not ensemble:
        raise ConfigError("--average has no effect without --ensemble; add a model to it")


@dataclass(frozen=True)
class Loading:
    """Options for loading a translation model."""

    ensemble: list[Path]
    average: Literal["log_probability", "probability"] | None
    precision: str
    workers: int | None
    shortlist: Path | None
    deterministic: bool
    task: str = ""
    device: str = "auto"
    split: Split | None = None
    copy: bool = True

    def translator(
        self,
        model: Path,
        search: "Search",
        *,
        source_language: str | None,
        target_language: str | None,
        terminology: "Terminology | None" = None,
    ) -> "Translator":
        """Loads the translator of a model; a language that is not given is the recorded one.

        Raises:
            BundleError: The model cannot be read, or does not translate.
        """
        from transformer.bundle.kind import model_kind
        from transformer.pipelines.auto import load_translator  # loads torch

        if model_kind(model) not in (None, "encoder-decoder"):
            raise BundleError(f"{model} does not translate; see `transformer info {model}` for its task")
        note_missing_kernels()
        return load_translator(
            model, search=with_average(search, self.average, self.ensemble), ensemble=self.ensemble,
            precision=self.precision, workers=self.workers, shortlist=self.shortlist,
            deterministic=self.deterministic, device=self.device, task=self.task, copy=self.copy, split=self.split,
            source_language=source_language, target_language=target_language, terminology=terminology,
        )  # fmt: skip


def loading_of(
    precision: Annotated[
        Literal["auto", "float32", "bf16", "int8"],
        typer.Option(help="precision of the weights; auto: int8 if fast on this CPU, else float32; bf16 on a GPU"),
    ] = "auto",
    workers: WorkersOption = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="file written by transformer shortlist: only predict likely tokens; scores are relative to these"
        ),
    ] = None,
    ensemble: EnsembleOption = None,
    average: AverageOption = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="translate each line alone: bitwise reproducible in any batch; slower"),
    ] = False,
    task: Annotated[
        str, typer.Option(help="prefix of each line and of its parts for text-to-text models, e.g. 'summarize: '")
    ] = "",
    device: DeviceOption = "auto",
    split: Annotated[
        Split | None,
        typer.Option(
            help="when lines of several sentences are split: auto (default; where the model was trained on lines of "
            "fewer), always (sentence), or only where they are too long (none)"
        ),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy/--no-copy", help="leave lines without letters, and addresses, as they are")
    ] = True,
) -> Loading:
    """Builds the loading options from the command line.

    Raises:
        ConfigError: There is an average, but no ensemble.
        DataError: The task is not UTF-8.
    """
    from transformer.text.lines import check_utf8

    refuse_average(average, ensemble)
    check_utf8(task, "the task")
    return Loading(ensemble or [], average, precision, workers, shortlist, deterministic, task, device, split, copy)


LengthPenaltyOption = Annotated[
    Penalty, typer.Option(help="paper: score / ((5 + length) / 6)^alpha; normalize: score / length^alpha")
]
AlphaOption = Annotated[
    float | None,
    typer.Option(min=0, help="exponent of the length penalty; default: 0.6 for paper, 1 for normalize"),
]
StoppingOption = Annotated[
    Stopping, typer.Option(help="early: stop when --beam hypotheses have ended; exhaustive: when none can improve")
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(min=1, help="maximum number of tokens; default: source (or minimum) + 50, 200 after a prompt"),
]
TemperatureOption = Annotated[
    float | None, typer.Option(min=0, help="with --sample: values below 1 are more conservative; default: 1")
]
TopPOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="with --sample: only the most probable tokens with a total probability of p"),
]


def search_of(
    beam: Annotated[int, typer.Option(min=1, max=1000, help="beam size; 1 is greedy search, the paper uses 4")] = 1,
    length_penalty: LengthPenaltyOption = "paper",
    alpha: AlphaOption = None,
    stopping: StoppingOption = "early",
    min_tokens: Annotated[int, typer.Option(min=0, help="minimum number of tokens to generate")] = 0,
    max_tokens: MaxTokensOption = None,
    no_repeat_ngram: Annotated[int, typer.Option(min=0, help="never repeat an n-gram of N tokens; 0: no limit")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(min=0, help="values above 1 make repeated tokens less likely")
    ] = 1.0,
    groups: Annotated[int, typer.Option(min=1, help="number of diverse beam groups; must divide --beam")] = 1,
    diversity: Annotated[
        float | None, typer.Option(min=0, help="penalty for tokens that other groups chose; default: 0.5")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="sample tokens; --beam is then the number of samples")
    ] = False,
    temperature: TemperatureOption = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="with --sample: only the k most probable tokens")] = None,
    top_p: TopPOption = None,
    min_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="with --sample: only tokens at least p times as probable as the best"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="with --sample: seed of the random numbers")] = None,
    coverage: Annotated[
        float, typer.Option(min=0, help="weight of the penalty for source tokens with little attention, e.g. 0.2")
    ] = 0.0,
    guard: Annotated[
        bool,
        typer.Option(
            help="search again if a translation loops, does not end, is empty, or changes a number or an address"
        ),
    ] = True,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="allow [UNK]; it is omitted in text, shown with --format jsonl")
    ] = False,
) -> "Search":
    """Builds the search from the command line.

    Raises:
        ConfigError: An option has an invalid value, or no effect without another one.
    """
    from transformer.decoding import Sampling, Search, length_normalization, paper_length_penalty

    sampling_options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    set_options: dict[str, Any] = {name: value for name, value in sampling_options.items() if value is not None}
    if set_options and not sample:
        raise ConfigError(f"--{next(iter(set_options)).replace('_', '-')} has no effect without --sample; add it")
    if diversity is not None and groups == 1:
        raise ConfigError("--diversity has no effect without --groups; choose e.g. --beam 4 --groups 2")
    penalty_type, default_alpha = (
        (paper_length_penalty, 0.6) if length_penalty == "paper" else (length_normalization, 1.0)
    )
    penalty = penalty_type(default_alpha if alpha is None else alpha)
    return Search(
        beam, penalty, stopping, min_tokens=min_tokens, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram,
        repetition_penalty=repetition_penalty, groups=groups, diversity=0.5 if diversity is None else diversity,
        sampling=Sampling(**set_options) if sample else None, allow_unknown=allow_unknown, coverage=coverage,
        retry_degenerate=guard,
    )  # fmt: skip


def takes(name: str, make: Callable[..., object], title: str) -> Callable[[Command], Command]:
    """Decorates a command: replaces one of its parameters by the options from which the value is built.

    Args:
        name: Name of the parameter.
        make: Function that builds the value; its parameters become the options.
        title: Heading of these options in `--help`.
    """
    options = _keywords(make)
    for option in options:
        _, information = get_args(option.annotation)
        information.rich_help_panel = title

    def with_options(command: Command) -> Command:
        other_parameters = [parameter for parameter in _keywords(command) if parameter.name != name]

        @wraps(command)
        def run(**arguments: object) -> None:
            value = make(**{option.name: arguments.pop(option.name) for option in options})
            command(**arguments, **{name: value})

        parameters = [*other_parameters, *options]
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return with_options


def options_of(make: Callable[..., object]) -> list[str]:
    """Returns the names of the options that a function takes, see `takes`."""
    return [parameter.name for parameter in _keywords(make)]


def _keywords(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Returns the parameters of a function as keyword-only parameters."""
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
    ]


takes_search = takes("search", search_of, "Search")
"""Decorator that adds the options of `search_of`, for the parameter `search`."""
takes_loading = takes("loading", loading_of, "Models and speed")
"""Decorator that adds the options of `loading_of`, for the parameter `loading`."""
