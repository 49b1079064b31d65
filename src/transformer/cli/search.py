"""Command-line options of the search and of the models."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from transformer.cli.fields import collects, option, takes
from transformer.cli.hub import obtain_model
from transformer.cli.kernel_note import note_missing_kernels
from transformer.cli.verbosity import notes_for_warnings, say
from transformer.errors import BundleError, ConfigError
from transformer.options.fields import facts_of
from transformer.options.length_penalties import length_normalization, paper_length_penalty
from transformer.options.search import GREEDY, MIN_MBR, Average, Sampling, Search, Utility
from transformer.options.translation import Device, LoadingOptions

if TYPE_CHECKING:
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.terminology import Terminology
    from transformer.pipelines.translation.translator import Translator

WorkersOption = Annotated[int | None, option(LoadingOptions, "workers")]
DeviceOption = Annotated[Device, option(LoadingOptions, "device")]
SpecialTokensOption = Annotated[bool, option(LoadingOptions, "special_tokens")]
EnsembleOption = Annotated[list[Path] | None, option(LoadingOptions, "ensemble")]
AverageOption = Annotated[Average | None, option(Search, "average")]
SourceLanguageOption = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="language of the source, e.g. en or pt-BR; default: as the model records it"),
]
TargetLanguageOption = Annotated[
    str | None,
    typer.Option(
        metavar="TAG",
        help="language of the target, e.g. de or zh-Hant, which a model of several languages needs; default: as the "
        "model records it",
    ),
]


def with_average(search: Search, average: Average | None, ensemble: Sequence[Path] | None) -> Search:
    """Returns the search with the requested average.

    Raises:
        ConfigError: The ensemble is empty.
    """
    if average is not None and not ensemble:
        raise ConfigError("--average has no effect without --ensemble; add a model to it")
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


def languages_of(source: str | None, target: str | None) -> "Languages":
    """Returns the languages that `--source-language` and `--target-language` name, as keyword arguments.

    Raises:
        ConfigError: A tag is not valid.
    """
    return {
        "source_language": language_of("--source-language", source),
        "target_language": language_of("--target-language", target),
    }


@dataclass(frozen=True)
class Loading:
    """Options for loading a translation model.

    Attributes:
        options: Those of `load_translator` that were given.
        average: Mean of the predictions of an ensemble; None if it was not given.
    """

    options: dict[str, Any]
    average: Average | None

    def obtain_models(self, model: Path) -> None:
        """Downloads what is not on this machine yet.

        Raises:
            BundleError: A model is not found, or does not translate.
        """
        from transformer.bundle.kind import model_kind

        if model_kind(obtain_model(model)) not in (None, "encoder-decoder"):
            raise BundleError(f"{model} does not translate; see `transformer info {model}` for its task")
        if (reverse := self.options.get("rerank")) is not None:
            obtain_model(reverse)

    def translator(
        self,
        model: Path,
        search: Search,
        *,
        source_language: str | None,
        target_language: str | None,
        terminology: "Terminology | None" = None,
    ) -> "Translator":
        """Loads the translator of a model; a language that is not given is the recorded one.

        Raises:
            BundleError: The model cannot be read, or does not translate.
            ConfigError: The model has several target languages, and none is chosen, or another one.
        """
        from transformer.pipelines.auto import load_translator  # loads torch
        from transformer.pipelines.translation.directions import check_target_language

        self.obtain_models(model)
        note_missing_kernels()
        with notes_for_warnings():
            translator = load_translator(
                model, search=with_average(search, self.average, self.options.get("ensemble")), **self.options,
                source_language=source_language, target_language=target_language, terminology=terminology,
            )  # fmt: skip
        check_target_language(translator.config, translator.tokenizers)
        return translator


SPEED = "Models and speed"


@collects(
    LoadingOptions,
    {SPEED: (
        "precision", "workers", "shortlist", "ensemble", "rerank", "deterministic", "task", "special_tokens", "device",
        "split", "case", "copy",
    )},
)  # fmt: skip
def loading_of(average: Annotated[Average | None, option(Search, "average")] = None, **options: Any) -> Loading:
    """Builds the loading options from the command line.

    Raises:
        ConfigError: There is an average, but no ensemble.
        DataError: The task is not UTF-8.
    """
    from transformer.text.lines import check_utf8

    with_average(GREEDY, average, options.get("ensemble"))
    check_utf8(options.get("task", ""), "the task")
    return Loading(options, average)


PENALTIES = {"paper": (paper_length_penalty, 0.6), "normalize": (length_normalization, 1.0)}
LengthPenaltyOption = Annotated[
    Literal["paper", "normalize"],
    typer.Option(help="paper: score / ((5 + length) / 6)^alpha; normalize: score / length^alpha"),
]
AlphaOption = Annotated[
    float | None, typer.Option(min=0, help="exponent of the length penalty; default: 0.6 for paper, 1 for normalize")
]
SAMPLING = "Sampling"
SampleOption = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="draw tokens, by --temperature and the like; --beam is then the number of samples",
        rich_help_panel=SAMPLING,
    ),
]
MBR_TEMPERATURE = 0.6
"""Temperature of the samples of --mbr; 1 draws too many bad translations from a small model."""
MbrOption = Annotated[
    int | None,
    typer.Option(
        "--mbr",
        metavar="N",
        min=MIN_MBR,
        help="draw N samples of each text and take the one most like all others (minimum Bayes risk); "
        f"samples have a --temperature of {MBR_TEMPERATURE} unless options of sampling are given",
        rich_help_panel=SAMPLING,
    ),
]
MbrMetricOption = Annotated[
    Utility | None,
    typer.Option(
        "--mbr-metric", help="score by which --mbr compares samples (default: chrf)", rich_help_panel=SAMPLING
    ),
]
GROUPS_DIVERSITY = 0.5
"""Penalty of diverse groups without --diversity."""


@collects(Sampling, {SAMPLING: ("temperature", "top_k", "top_p", "min_p", "seed")})
@collects(
    Search,
    {
        "Search": (
            "beam", "stopping", "min_tokens", "max_tokens", "no_repeat_ngram", "repetition_penalty", "groups",
            "diversity", "coverage", "rerank_weight", "retry_degenerate", "allow_unknown",
        ),
    },
    flags={"retry_degenerate": "--guard/--no-guard"},
)  # fmt: skip
def search_of(
    length_penalty: LengthPenaltyOption = "paper",
    alpha: AlphaOption = None,
    sample: SampleOption = False,
    mbr: MbrOption = None,
    mbr_metric: MbrMetricOption = None,
    **options: Any,
) -> Search:
    """Builds the search from the command line; samples without a seed get another one each time, which is printed.

    Raises:
        ConfigError: An option has an invalid value, or no effect without another one.
    """
    sampling = {name: options.pop(name) for name in facts_of(Sampling) if name in options}
    if mbr is not None:
        if "beam" in options:
            raise ConfigError(f"--mbr {mbr} is the number of samples already; leave out --beam")
        sample, options = True, {**options, "beam": mbr, "mbr": mbr_metric or "chrf"}
        if not sampling.keys() - {"seed"}:
            sampling["temperature"] = MBR_TEMPERATURE
    elif mbr_metric is not None:
        raise ConfigError("--mbr-metric has no effect without --mbr; add e.g. --mbr 16")
    if sampling and not sample:
        raise ConfigError(f"--{next(iter(sampling)).replace('_', '-')} has no effect without --sample; add it")
    if sample and "seed" not in sampling:
        sampling["seed"] = secrets.randbits(32)
        say(f"sampling with seed {sampling['seed']}; --seed {sampling['seed']} draws the same again")
    if options.get("groups", 1) > 1:
        options = {"diversity": GROUPS_DIVERSITY, **options}
    elif "diversity" in options:
        raise ConfigError("--diversity has no effect without --groups; choose e.g. --beam 4 --groups 2")
    penalty, default_alpha = PENALTIES[length_penalty]
    return Search(
        length_penalty=penalty(default_alpha if alpha is None else alpha),
        sampling=Sampling(**sampling) if sample else None,
        **options,
    )


takes_search = takes("search", search_of, "Search")
"""Decorator that adds the options of `search_of`, for the parameter `search`."""
takes_loading = takes("loading", loading_of, SPEED)
"""Decorator that adds the options of `loading_of`, for the parameter `loading`."""
