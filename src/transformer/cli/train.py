"""`transformer train`: a recipe, or two files, to a run folder."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.task_configs import TASKS
from transformer.errors import ConfigError
from transformer.models import family, family_names
from transformer.run.recipe import load_recipe
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.config import TrainingConfig


def train_help() -> str:
    """The recipe's keys with their defaults, from the fields themselves."""
    sections: dict[str, type[Config]] = {
        "data": DataConfig,
        "tokenizer": TokenizerConfig,
        "model": family("transformer").config,
        "training": TrainingConfig,
    }
    lines = [
        f"- data.task (translation): {', '.join(TASKS)}",
        f"- model.family (as the task needs): {', '.join(family_names())}",
        "- model.preset (by the size of the corpus, or tiny): see transformer info",
    ]
    lines += [line for section, settings in sections.items() for line in _keys(section, settings)]
    for settings in dict.fromkeys(TASKS.values()):
        if settings is not DataConfig:
            tasks = ", ".join(task for task, own in TASKS.items() if own is settings)
            lines += ["", f"data, where data.task is one of {tasks}:", "", *_keys("data", settings)]
    others = ", ".join(name for name in family_names() if name != "transformer")
    return "\n".join([
        "Recipe keys:", "", *lines, "",
        f"Other families ({others}) have keys of their own: see transformer info FAMILY.", "",
        "Example: transformer train recipes/multi30k-en-de.toml --run run",
    ])  # fmt: skip


def _keys(section: str, settings: type[Config]) -> list[str]:
    return [
        f"- {section}.{name} ({'required' if field.is_required() else field.default}): {field.description}"
        for name, field in settings.model_fields.items()
        if field.description
    ]


def given_data(
    recipe: Path | None,
    overrides: list[str] | None,
    source: str | None,
    target: str | None,
    pairs: str | None,
    text: str | None = None,
) -> dict[str, Any]:
    """The keys of `data` that options of their own give, beside those of a recipe and of `overrides`.

    Raises:
        ConfigError: none of them names a training text.
    """
    given = {"source": source, "target": target, "pairs": pairs, "text": text}
    data: dict[str, Any] = {key: value for key, value in given.items() if value}
    elsewhere = recipe is not None or any(each.startswith("data.") for each in overrides or ())
    if not elsewhere and not pairs and not text and not (source and target):
        raise ConfigError(
            "nothing to train on; give a recipe file, or both --source and --target, or --pairs, or --text"
        )
    return {"task": "language-model", **data} if text and recipe is None else data


def train(
    recipe: Annotated[Path | None, typer.Argument(help="recipe file (TOML)")] = None,
    source: Annotated[str | None, typer.Option(help="text to translate from, one sentence a line")] = None,
    target: Annotated[str | None, typer.Option(help="its translation, line by line")] = None,
    pairs: Annotated[str | None, typer.Option(help="file that holds both sides: .tsv, .jsonl, .parquet, .tmx")] = None,
    text: Annotated[
        str | None, typer.Option(help="running text, for a language model in place of a translator")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="folder of the run; runs/NAME of the recipe if not given")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="fine-tune this model: same architecture and tokenizer, new data")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a recipe key, e.g. training.seed=2")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start anew, in a new folder beside one that exists")] = False,
    allow_changed: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="go on although this key or text differs, e.g. training.learning_rate"),
    ] = None,
) -> None:
    """Train a translator from a recipe, or from two text files alone; other models by a recipe's `data.task`.

    The same command on an unfinished run folder continues it. Ctrl-C finishes the step, saves, and exits with 130.
    """
    data = given_data(recipe, overrides, source, target, pairs, text)
    if run is None and recipe is None:
        raise ConfigError("--run is missing; name the folder that the model goes to")
    folder = run or Path("runs") / (recipe or Path()).stem
    values = {"data": data, "training": {"start_from": start} if start else {}}
    loaded = load_recipe(recipe, overrides or (), {section: keys for section, keys in values.items() if keys})

    from transformer.run.train import train as train_run  # loads torch

    result = train_run(loaded, folder, fresh=fresh, allow_changed=allow_changed or ())
    if result.interruption.requested:
        step = result.progress.step
        saved = (
            f"stopped at step {step} and saved; the same command continues" if step else "stopped before the first step"
        )
        if result.is_main:
            typer.echo(saved, err=True)
    elif result.is_main:
        _close(result.folder, result.model, result.progress.best_scores, result.average_scores)
    code = result.interruption.exit_code if result.interruption.requested else 0
    if result.ranks > 1:
        _end_rank(code, result.is_main)
    raise typer.Exit(code)


def _end_rank(code: int, is_main: bool) -> NoReturn:
    """Ends the process as it is; where the launcher then ends the others, the one that has to tell why comes first.

    A thread of gloo that lets go of a tensor while Python takes itself apart would end it with SIGABRT, and the
    launcher would call a run that is done a failure (github.com/pytorch/pytorch/issues/190489).
    """
    from transformer.training.distributed.process_group import AFTERMATH_SECONDS

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a reader that has left
            stream.flush()
    if code and not is_main:
        with suppress(KeyboardInterrupt):
            time.sleep(AFTERMATH_SECONDS)
    os._exit(code)


def _close(folder: Path, model: Path, best: dict[str, float], average: dict[str, float]) -> None:
    from transformer.reporting.figures import training_curve

    picture = training_curve(folder)
    for title, scores in (("best on validation", best), ("average of checkpoints", average)):
        if scores:
            typer.echo(f"{title}: {', '.join(f'{name} {value:.2f}' for name, value in scores.items())}")
    typer.echo(f"model: {model}")
    typer.echo(f"curve: {picture}" if picture else "no training curve: pip install matplotlib to have it drawn")
    typer.echo(f"report: {folder / 'report.html'}")
    typer.echo(f"next: transformer {_next(model)}".replace("FOLDER", str(folder)))


def _next(model: Path) -> str:
    """What can be done with a model of its kind."""
    from transformer.bundle import load_bundle

    config = load_bundle(model).config.model_dump()
    kind = family(config["family"]).kind
    if kind == "encoder":
        return (
            "classify FOLDER TEXT" if config["labels"] else "fill FOLDER TEXT" if config["masked"] else "embed FOLDER"
        )
    commands = {"language model": "generate FOLDER PROMPT", "image encoder": "classify FOLDER IMAGE"}
    return commands.get(kind, "translate FOLDER --input FILE")


EPILOG = train_help()
