"""Running a recipe, from the start or from where it stands."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch

from transformer.data.progress import show_progress
from transformer.reporting import write_report
from transformer.run.recipe import Recipe, load_recipe, refuse_unwritable
from transformer.run.run_folder import fresh_folder, hold_run, nothing_left
from transformer.run.setup import RECIPE_FILE, assemble
from transformer.run.tasks import make_task
from transformer.run.trainer import Trainer
from transformer.runtime.allocator import retain_heap
from transformer.storage.checkpoints import MODEL, resolve_model
from transformer.training.backend import enlarge_onednn_cache
from transformer.training.distributed.process_group import FRESH, join_process_group
from transformer.training.interruption import Interruption, watch_signals
from transformer.training.loop import Callbacks
from transformer.training.loop import train as train_loop
from transformer.training.monitoring.progress import Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.monitoring.tensorboard import TensorBoard

METRICS_FILE, TOKENS_FOLDER, BOARD_FOLDER = "metrics.jsonl", "tokens", "tensorboard"


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        folder: of the run.
        model: the bundle of the best validation: a checkpoint, or the average of several.
        progress: figures reached; its `best_scores` are those of the best checkpoint.
        interruption: the signal that ended it early, if any.
        average_scores: figures of the average of checkpoints; empty where there is none.
        is_main: False on the other ranks of a run on several, where only the first speaks.
        ranks: of the run.
    """

    folder: Path
    model: Path
    progress: Progress
    interruption: Interruption
    average_scores: dict[str, float] = field(default_factory=dict)
    is_main: bool = True
    ranks: int = 1


def train(
    recipe: Recipe | Path | str,
    run: Path | str | None = None,
    *,
    quiet: bool = False,
    fresh: bool = False,
    allow_changed: Collection[str] = (),
) -> RunResult:
    """Trains the model of a recipe; the same call on an unfinished run continues it.

    Args:
        recipe: a recipe, or the path of its file.
        run: folder of the run, made if missing; by default `runs/` and the name of the recipe's file, or of the
            source text.
        quiet: show nothing.
        fresh: start anew, in RUN-2 or the next that is free where the folder exists; nothing is removed.
        allow_changed: keys of the recipe, such as `training.learning_rate`, that may differ from those the run began
            with, texts, such as `data.source`, that may have been edited, and `optimizer`, whose file may be missing.

    Raises:
        TransformerError: of the kind that fits: a wrong setting, unusable data, a folder of another run or in use, a
            loss that is not finite.
    """
    given = recipe if isinstance(recipe, Recipe) else load_recipe(Path(recipe))
    folder = Path(run) if run else Path("runs") / Path(given.data.name if isinstance(recipe, Recipe) else recipe).stem
    refuse_unwritable(str(folder), "run")
    retain_heap()
    enlarge_onednn_cache()
    torch.set_num_threads(given.training.threads or torch.get_num_threads())
    with join_process_group(given.training) as context:
        quiet = quiet or not context.is_main
        notes: list[str] = []
        if fresh and (chosen := Path(context.broadcast_across_restarts(FRESH, str(fresh_folder(folder))))) != folder:
            folder = chosen
            notes.append(f"starts anew in {folder}")
        with hold_run(folder) if context.is_main else nullcontext():
            left = (RECIPE_FILE, TOKENS_FOLDER) if context.is_main else ()
            with nothing_left(folder, left, "tokens-*"), show_progress(quiet=quiet) as progress:
                task = make_task(given.data, given.training.seed, folder / TOKENS_FOLDER, progress)
                parts = assemble(given, folder, task, allow_changed, notes, context)
            interruption = _train(parts, quiet=quiet)
    model = resolve_model(folder) if parts.progress.step else parts.checkpoints.folder(0) / MODEL
    ranks = context.is_main, context.size
    return RunResult(folder, model, parts.progress, interruption, parts.average_scores, *ranks)


def _train(parts: Trainer, *, quiet: bool) -> Interruption:
    training, progress = parts.recipe.training, parts.progress
    path, max_steps = parts.folder / METRICS_FILE if parts.context.is_main else None, training.max_steps or 0
    board = TensorBoard(parts.folder / BOARD_FOLDER, progress.step) if training.tensorboard and path else None
    reporter = Reporter(
        path, max_steps, training.log_every, start=progress, unit=parts.task.scored, quiet=quiet, tensorboard=board
    )
    try:
        for line in [*parts.opening(), *parts.plan()]:
            reporter.log(line)
        with watch_signals(training.stop_seconds) as interruption:

            def save(progress: Progress) -> None:
                reporter.sync()
                parts.save(progress)

            callbacks = Callbacks(parts.validate, save, reporter, interruption)
            train_loop(parts.state, parts.material.train, training, parts.schedule, progress, callbacks)
        if progress.finished and parts.context.is_main:
            parts.average(reporter)
            write_report(parts.folder)
        return interruption
    finally:
        reporter.close()
