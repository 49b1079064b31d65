"""Entry point of training: runs a recipe, from the start or from the newest checkpoint."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from transformer.data.progress import show_progress
from transformer.reporting import write_report
from transformer.run.plan import TOKENS_FOLDER, make_plan
from transformer.run.plan_table import format_table, plan_lines
from transformer.run.recipe import Recipe, check_encodable, load_recipe
from transformer.run.resume import optional_files
from transformer.run.run_folder import default_folder, lock_run_folder, remove_on_failure, unused_folder
from transformer.run.trainer import RECIPE_FILE, Trainer, build_trainer
from transformer.runtime.allocator import retain_heap
from transformer.runtime.stopwatch import Stopwatch
from transformer.runtime.threads import prepare_threads, set_threads
from transformer.storage.checkpoint_paths import MODEL, resolve_model
from transformer.training.backend import enlarge_onednn_cache
from transformer.training.checkpoint import CheckpointManager
from transformer.training.distributed.process_group import FRESH, join_process_group
from transformer.training.interruption import REPEAT_SECONDS, Interruption, watch_signals
from transformer.training.loop import Callbacks, finish_reason, validate_start
from transformer.training.loop import train as train_loop
from transformer.training.monitoring.progress import Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.monitoring.tensorboard import TensorBoard
from transformer.training.planning.plan import plan_run
from transformer.training.time_limit import last_step

METRICS_FILE, TENSORBOARD_FOLDER = "metrics.jsonl", "tensorboard"


@dataclass(frozen=True)
class RunResult:
    """Result of a training run.

    Attributes:
        folder: Run folder.
        model: Bundle with the best validation score: a checkpoint, or the average of several.
        progress: Final progress; its `best_scores` are those of the best checkpoint.
        interruption: Signal that ended the run early, if any.
        average_scores: Validation scores of the averaged checkpoints; empty if none was computed.
        is_main: Whether this process is rank 0, the only one that reports.
        ranks: Number of ranks.
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
    stopwatch: Stopwatch | None = None,
) -> RunResult:
    """Trains the model of a recipe; the same call on an unfinished run continues it.

    Args:
        recipe: Recipe, or path of its file.
        run: Run folder, created if missing; by default `runs/` followed by the name of the recipe file, or of the
            texts: `runs/corpus` for corpus.en and corpus.de.
        quiet: Whether to suppress all output.
        fresh: Whether to start anew. If the folder exists, RUN-2 or the next unused name is chosen; nothing is removed.
        allow_changed: Keys of the recipe that may differ from those the run began with, such as
            `training.learning_rate`; texts that may have been edited, such as `data.source`; and `optimizer`, if its
            file may be missing.
        stopwatch: Time since the start of the command, which `training.minutes` limits; since now if None.

    Raises:
        TransformerError: A subclass that describes the cause: an invalid setting, unusable data, a folder that is in
            use or belongs to another run, or a loss that is not finite.
    """
    stopwatch = stopwatch or Stopwatch()
    user_recipe = recipe if isinstance(recipe, Recipe) else load_recipe(Path(recipe))
    path = Path(recipe) if not isinstance(recipe, Recipe) else None
    folder = Path(run) if run else default_folder(path, user_recipe.data)
    check_encodable(str(folder), "run")
    retain_heap()
    enlarge_onednn_cache()
    if user_recipe.training.threads:
        set_threads(user_recipe.training.threads, "training.threads")
    prepare_threads()
    with join_process_group(user_recipe.training) as context:
        quiet = quiet or not context.is_main
        notes: list[str] = []
        if fresh and (chosen := Path(context.broadcast_across_restarts(FRESH, str(unused_folder(folder))))) != folder:
            folder = chosen
            notes.append(f"starts anew in {folder}")
        with lock_run_folder(folder) if context.is_main else nullcontext():
            removable = (RECIPE_FILE, TOKENS_FOLDER) if context.is_main else ()
            with remove_on_failure(folder, removable, "tokens-*"), show_progress(quiet=quiet) as progress:
                checkpoints = CheckpointManager(folder, user_recipe.training.keep_last, optional_files(allow_changed))
                plan, start = make_plan(user_recipe, checkpoints, allow_changed, context, progress, stopwatch)
                trainer = build_trainer(plan, start, checkpoints)
                del start  # and with it the weights that the model was loaded from
            interruption, average_scores = _train(trainer, notes, stopwatch, quiet=quiet)
    model = resolve_model(folder) if trainer.progress.step else checkpoints.folder(0) / MODEL
    return RunResult(folder, model, trainer.progress, interruption, average_scores, context.is_main, context.size)


def _train(
    trainer: Trainer, notes: list[str], stopwatch: Stopwatch, *, quiet: bool
) -> tuple[Interruption, dict[str, float]]:
    """Runs the training loop; returns the signal that ended it, if any, and the scores of the averaged checkpoints."""
    plan, settings, progress = trainer.plan, trainer.plan.settings, trainer.progress
    path = plan.folder / METRICS_FILE if plan.context.is_main else None
    tensorboard_folder = plan.folder / TENSORBOARD_FOLDER
    tensorboard = TensorBoard(tensorboard_folder, progress.step) if settings.tensorboard and path else None
    average_scores: dict[str, float] = {}
    reporter = Reporter(
        path,
        last_step(progress, settings),
        settings.log_every,
        start=progress,
        unit=plan.data.loss_unit,
        quiet=quiet,
        tensorboard=tensorboard,
    )
    try:
        parameters = sum(parameter.numel() for parameter in trainer.distributed.whole.parameters())
        for line in (*notes, *trainer.notes, *plan_lines(plan, parameters, trainer.n_trained, progress)):
            reporter.log(line)
        for line in _cost_lines(trainer, reporter):
            reporter.log(line)
        repeat_seconds = REPEAT_SECONDS if plan.context.size > 1 else 0.0
        with watch_signals(settings.stop_seconds, repeat_seconds) as interruption:

            def validate() -> dict[str, float]:
                with reporter.busy("validating"):
                    return trainer.validate()

            def save(progress: Progress) -> None:
                with reporter.busy("saving a checkpoint"):
                    reporter.sync()
                    trainer.save(progress)

            limit = plan.time.limit(settings, progress, stopwatch)
            callbacks = Callbacks(validate, save, reporter, interruption, limit)
            if plan.origin:
                validate_start(trainer.state, settings, progress, callbacks)
            train_loop(
                trainer.state, plan.data.train, settings, plan.schedule, progress, callbacks, plan.data.stages
            )  # fmt: skip
        if progress.finished and plan.context.is_main:
            with reporter.busy("averaging checkpoints"):
                average_scores = trainer.average(reporter)
            with reporter.busy("calibrating the confidence"):
                plan.data.calibrate(resolve_model(plan.folder), settings, plan.backend)
            with reporter.busy("writing the report"):
                write_report(plan.folder)
        return interruption, average_scores
    finally:
        reporter.close()


def _cost_lines(trainer: Trainer, reporter: Reporter) -> list[str]:
    """Estimates time and memory of the rest of the run, on all ranks together; empty if the run is finished."""
    plan = trainer.plan
    if finish_reason(trainer.progress, plan.settings):
        return []

    def warm_up_validation() -> None:
        with reporter.waiting("trying a validation"):
            trainer.warm_up_validation()

    with reporter.waiting("trying the largest batches"):
        lines = plan_run(trainer.state, plan.data.examples, plan.settings, warm_up_validation)
    return format_table(lines)
