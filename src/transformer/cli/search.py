"""The options that say how translations are searched for."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.pipelines.translation.translator import Translator

Command = Callable[..., None]
Penalty = Literal["paper", "normalize"]
Stopping = Literal["early", "exhaustive"]


WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="processes that translate at a time; one a thread, up to 8, if not given")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="where to compute; auto: on a GPU where there is one")
]
EnsembleOption = Annotated[
    list[Path] | None, typer.Option(help="a further model that translates together with it; may be given again")
]

AverageOption = Annotated[
    Literal["log_probability", "probability"] | None,
    typer.Option(
        help="of --ensemble: log_probability, which is taken if not given, wants tokens that please all models, "
        "probability any"
    ),
]


def with_average(
    search: "Search", average: Literal["log_probability", "probability"] | None, ensemble: Sequence[Path] | None
) -> "Search":
    """The search with the average that is asked for.

    Raises:
        ConfigError: there is no ensemble.
    """
    refuse_average(average, ensemble)
    return search if average is None else replace(search, average=average)


def refuse_average(average: str | None, ensemble: Sequence[Path] | None) -> None:
    """Refuses an average of one model.

    Raises:
        ConfigError: there is no ensemble.
    """
    if average is not None and not ensemble:
        raise ConfigError("--average does nothing without --ensemble; add a model to it")


@dataclass(frozen=True)
class Loading:
    """What a model is loaded with."""

    ensemble: list[Path]
    average: Literal["log_probability", "probability"] | None
    precision: str
    workers: int | None
    shortlist: Path | None
    deterministic: bool
    task: str = ""
    device: str = "auto"

    def translator(self, model: Path, search: "Search", **options: Any) -> "Translator":
        """The model's translator."""
        from transformer.pipelines.auto import load_translator  # loads torch

        translator = load_translator(
            model, search=with_average(search, self.average, self.ensemble), ensemble=self.ensemble,
            precision=self.precision, workers=self.workers, shortlist=self.shortlist,
            deterministic=self.deterministic, device=self.device, **options,
        )  # fmt: skip
        translator.task = self.task
        return translator


def loading_of(
    precision: Annotated[
        Literal["auto", "float32", "bf16", "int8"],
        typer.Option(help="of the weights; auto: int8 where this processor is fast at it, else float32; bf16 on a GPU"),
    ] = "auto",
    workers: WorkersOption = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="file of transformer shortlist: compute only tokens that go with the source's; scores are among these"
        ),
    ] = None,
    ensemble: EnsembleOption = None,
    average: AverageOption = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="each line alone: the same to the last bit whatever is beside it; slower"),
    ] = False,
    task: Annotated[
        str, typer.Option(help="of text-to-text models: put before each line, e.g. 'summarize: ', and before its parts")
    ] = "",
    device: DeviceOption = "auto",
) -> Loading:
    """What the options ask for.

    Raises:
        ConfigError: an average of one model.
        DataError: the task is not UTF-8.
    """
    from transformer.text.lines import check_utf8

    refuse_average(average, ensemble)
    check_utf8(task, "the task")
    return Loading(ensemble or [], average, precision, workers, shortlist, deterministic, task, device)


def search_of(
    beam: Annotated[
        int, typer.Option(min=1, max=1000, help="hypotheses followed at a time; 1 is greedy, the paper takes 4")
    ] = 1,
    length_penalty: Annotated[
        Penalty, typer.Option(help="paper: score / ((5 + length) / 6)^alpha; normalize: score / length^alpha")
    ] = "paper",
    alpha: Annotated[
        float | None, typer.Option(min=0, help="exponent of the length penalty; 0.6, or 1 to normalize, if not given")
    ] = None,
    stopping: Annotated[
        Stopping, typer.Option(help="early: once as many ended as the beam is wide; exhaustive: once none can improve")
    ] = "early",
    min_tokens: Annotated[int, typer.Option(min=0, help="fewest tokens to write")] = 0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="most; source (or fewest) + 50, after a prompt 200")
    ] = None,
    no_repeat_ngram: Annotated[int, typer.Option(min=0, help="write no N tokens in a row twice; 0 lets all be")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(min=0, help="above 1, tokens already written are less likely to be written again")
    ] = 1.0,
    groups: Annotated[int, typer.Option(min=1, help="parts of the beam that shall differ, a divisor of it")] = 1,
    diversity: Annotated[
        float | None, typer.Option(min=0, help="what a token loses for each group that took it; 0.5 if not given")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="draw tokens; --beam is then the number of samples")] = False,
    temperature: Annotated[float | None, typer.Option(min=0, help="of --sample: below 1 is more careful")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="of --sample: among the k most probable tokens")] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="of --sample: among the likeliest that add up to p")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="of --sample: among those p times as likely as the likeliest")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="of --sample: other numbers draw other translations")] = None,
    coverage: Annotated[
        float, typer.Option(min=0, help="what too little attention to source tokens costs a translation, e.g. 0.2")
    ] = 0.0,
    guard: Annotated[bool, typer.Option(help="search again where a translation repeats itself or does not end")] = True,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="let [UNK] be written; text leaves it out, --format jsonl shows it")
    ] = False,
) -> "Search":
    """What the options ask for.

    Raises:
        ConfigError: options that mean nothing, alone or together.
    """
    from transformer.decoding import Sampling, Search, length_normalization, paper_length_penalty

    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in drawn.items() if value is not None}
    if given and not sample:
        raise ConfigError(f"--{next(iter(given)).replace('_', '-')} does nothing without --sample; add it")
    if diversity is not None and groups == 1:
        raise ConfigError("--diversity does nothing without --groups; choose e.g. --beam 4 --groups 2")
    kind, usual = (paper_length_penalty, 0.6) if length_penalty == "paper" else (length_normalization, 1.0)
    penalty = kind(usual if alpha is None else alpha)
    return Search(
        beam, penalty, stopping, min_tokens=min_tokens, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram,
        repetition_penalty=repetition_penalty, groups=groups, diversity=0.5 if diversity is None else diversity,
        sampling=Sampling(**given) if sample else None, allow_unknown=allow_unknown, coverage=coverage,
        retry_degenerate=guard,
    )  # fmt: skip


def takes(name: str, make: Callable[..., Any], title: str) -> Callable[[Command], Command]:
    """Gives a command, in place of one of its parameters, the options that it is made from.

    Args:
        name: of the parameter.
        make: the parameters of this function are the options.
        title: of their part in `--help`.
    """
    options = _keywords(make)
    for option in options:
        _, information = get_args(option.annotation)
        information.rich_help_panel = title

    def with_options(command: Command) -> Command:
        own = [parameter for parameter in _keywords(command) if parameter.name != name]

        @wraps(command)
        def run(**given: Any) -> None:
            made = make(**{option.name: given.pop(option.name) for option in options})
            command(**given, **{name: made})

        parameters = [*own, *options]
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return with_options


def options_of(make: Callable[..., Any]) -> list[str]:
    """The names of the options that something is made from, see `takes`."""
    return [parameter.name for parameter in _keywords(make)]


def _keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters, with annotations that are types, to be given by name."""
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
    ]


takes_search = takes("search", search_of, "Search")
"""Gives a command the options of `search_of` for its parameter `search`."""
takes_loading = takes("loading", loading_of, "Models and speed")
"""Gives a command the options of `loading_of` for its parameter `loading`."""
