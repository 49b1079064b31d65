"""`transformer train`: trains a model from a recipe or from text files."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from transformer.cli.completion import complete_model
from transformer.cli.corpus import takes_corpus
from transformer.cli.hub import obtain_model
from transformer.cli.kernel_note import note_missing_kernels
from transformer.cli.paths import folder_option
from transformer.cli.progress import spinner
from transformer.cli.verbosity import is_quiet, takes_verbosity
from transformer.config import Config
from transformer.data.augment.config import AugmentConfig
from transformer.data.config import DataConfig
from transformer.data.language_pairs import LanguagePair
from transformer.data.stages import StageConfig
from transformer.data.task_configs import TASKS
from transformer.errors import OutputError
from transformer.models import family, family_names
from transformer.run.run_folder import default_folder
from transformer.runtime.stopwatch import Stopwatch
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.config import TrainingConfig

if TYPE_CHECKING:
    from transformer.cli.corpus import Corpus
    from transformer.run.train import RunResult

MAIN_KEYS = (
    "tokenizer.vocab_size", "model.preset", "model.dropout", "training.max_steps", "training.batch_tokens",
    "training.learning_rate", "training.patience", "training.average_last", "training.seed", "data.validation_source",
)  # fmt: skip
"""The keys that are most often set; `transformer recipes --keys` lists all."""


def train_help() -> str:
    """Returns the keys of a recipe that are most often set, with their defaults and descriptions."""
    keys = [_line(*row) for _, rows in recipe_sections() for row in rows if row[0] in MAIN_KEYS]
    return "\n".join([
        "Keys for --set and recipes, of which transformer recipes --keys lists all:", "", *keys, "",
        "Example: transformer train corpus.en corpus.de --minutes 30",
    ])  # fmt: skip


def recipe_keys() -> str:
    """Returns a list of all recipe keys with their defaults and descriptions."""
    lines = ["Recipe keys:", ""]
    for heading, rows in recipe_sections():
        if heading not in SECTIONS:
            lines += ["", f"{heading}:", ""]
        lines += [_line(*row) for row in rows]
    others = ", ".join(name for name in family_names() if name != "transformer")
    return "\n".join([*lines, "", f"Other families ({others}) have their own keys: see transformer info FAMILY."])


SECTIONS: dict[str, type[Config]] = {
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
    "model": family("transformer").config,
    "training": TrainingConfig,
}
"""The sections of a recipe of the translation task, with the configuration that each fills."""


def recipe_sections() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Returns the keys of a recipe by section, each with its default and description."""
    sections = [(name, _keys(name, config)) for name, config in SECTIONS.items()]
    sections[0][1].insert(0, ("data.task", "translation", ", ".join(TASKS)))
    sections[2][1][:0] = [
        ("model.family", "depends on the task", ", ".join(family_names())),
        ("model.preset", "depends on the size of the corpus, or tiny", "see transformer info"),
    ]
    sections.insert(1, ("data.augment", _keys("data.augment", AugmentConfig)))
    sections.insert(2, ("tables [[data.pairs]]", _keys("data.pairs", LanguagePair)))
    sections.insert(3, ("tables [[data.stages]]", _keys("data.stages", StageConfig)))
    for config in dict.fromkeys(TASKS.values()):
        if config is not DataConfig:
            tasks = ", ".join(task for task, of_task in TASKS.items() if of_task is config)
            sections.append((f"data, if data.task is one of {tasks}", _keys("data", config)))
    return sections


def _keys(section: str, config: type[Config]) -> list[tuple[str, str, str]]:
    return [
        (f"{section}.{name}", "required" if field.is_required() else str(field.default), field.description)
        for name, field in config.model_fields.items()
        if field.description
    ]


def _line(key: str, default: str, description: str) -> str:
    return f"- {key} ({default}): {description}"


SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-language", metavar="TAG", help="language of the source, e.g. en; default: by file name or detected"
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option("--target-language", metavar="TAG", help="language of the target, e.g. zh-Hant; default: likewise"),
]


@takes_verbosity
@takes_corpus
def train(
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    run: Annotated[
        Path | None,
        folder_option(
            "folder of the run; if not given, runs/NAME: the name of the recipe, or runs/corpus for corpus.en and "
            "corpus.de"
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="model to fine-tune on new data; keeps its architecture and tokenizer",
            autocompletion=complete_model,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="time for the whole command; fits model, schedule and warm-up to it by the measured speed, e.g. 30",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="start a new run in a new folder beside an existing one")
    ] = False,
    allow_changed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="resume although this key or text has changed, e.g. training.learning_rate; may be repeated",
        ),
    ] = None,
    *,
    corpus: "Corpus",
) -> None:
    """Train a translation model on two text files, or by a recipe; other models by a recipe's `data.task`.

    The same command resumes an unfinished run. Ctrl-C finishes the current step, saves a checkpoint, and exits with
    code 130.
    """
    stopwatch = Stopwatch()
    recipe = corpus.load(
        _chosen(source_language=source_language, target_language=target_language),
        _chosen(start_from=start or None, minutes=minutes),
    )
    folder = run or default_folder(corpus.recipe, recipe.data)
    if recipe.training.start_from is not None:
        obtain_model(Path(recipe.training.start_from))

    with spinner("loading PyTorch"):
        from transformer.run.train import train as train_run

    note_missing_kernels()
    result = train_run(
        recipe, folder, quiet=is_quiet(), fresh=fresh, allow_changed=allow_changed or (), stopwatch=stopwatch
    )
    if result.is_main:
        _print_results(result)
    code = result.interruption.exit_code if result.interruption.requested else 0
    if result.ranks > 1:
        end_rank(code, result.is_main)
    raise typer.Exit(code)


def _chosen(**keys: object) -> dict[str, object]:
    """Returns the keys of a recipe whose options were given."""
    return {key: value for key, value in keys.items() if value is not None}


def end_rank(code: int, is_main: bool) -> NoReturn:
    """Ends the process without the shutdown of the interpreter; on failure, the main rank ends first.

    During the shutdown, a gloo thread that releases a tensor could abort the process with SIGABRT. The launcher would
    then report a finished run as failed (github.com/pytorch/pytorch/issues/190489).
    """
    from transformer.training.distributed.process_group import AFTERMATH_SECONDS

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, OutputError, typer.Exit):  # a reader that has exited, or a full disk
            stream.flush()
    if code and not is_main:  # the launcher ends the other ranks after the first one, which has to print the cause
        with suppress(KeyboardInterrupt):
            time.sleep(AFTERMATH_SECONDS)
    os._exit(code)


def _print_results(result: "RunResult") -> None:
    """Prints the scores of a run, the files that it wrote, and the next command; of a stopped run, its last step."""
    if result.interruption.requested:
        step = result.progress.step
        saved = f"stopped at step {step} and saved; the same command resumes the run"
        typer.echo(saved if step else "stopped before the first step", err=True)
        return
    from transformer.reporting.figures import training_curve
    from transformer.training.monitoring.reporter import describe_scores

    figure = training_curve(result.folder)
    scores_by_title = {
        "best on validation": result.progress.best_scores, "average of checkpoints": result.average_scores
    }  # fmt: skip
    for title, scores in scores_by_title.items():
        if scores:
            typer.echo(f"{title}: {describe_scores(scores, ', ')}")
    typer.echo(f"model: {result.model}")
    typer.echo(
        f"curve: {figure}" if figure else "no training curve: install matplotlib to draw it (pip install matplotlib)"
    )
    typer.echo(f"report: {result.folder / 'report.html'}")
    typer.echo(f"next: transformer {_next_command(result.model)}".replace("FOLDER", str(result.folder)))


def _next_command(model: Path) -> str:
    """Returns the command that uses a model of this kind, with its arguments."""
    from transformer.bundle import load_bundle
    from transformer.bundle.languages import recorded_pairs

    bundle = load_bundle(model)
    config = bundle.config.model_dump()
    kind = family(config["family"]).kind
    if kind == "encoder":
        return (
            "classify FOLDER TEXT" if config["labels"] else "fill FOLDER TEXT" if config["masked"] else "embed FOLDER"
        )
    commands = {"language model": "generate FOLDER PROMPT", "image encoder": "classify FOLDER IMAGE"}
    pairs = recorded_pairs(bundle)
    language = f" --target-language {pairs[0][1]}" if pairs else ""
    return commands.get(kind, f"translate FOLDER --input FILE{language}")


EPILOG = train_help()
