"""Setup of a run: builds model and optimizer of a plan, and loads what the start of the run brings."""

from pathlib import Path

from transformer.reporting.record import METRICS
from transformer.run.build import new_model, new_objective, new_optimizer
from transformer.run.plan import TrainingPlan
from transformer.run.start import Start
from transformer.run.trainer import Trainer
from transformer.storage.atomic import replace_text
from transformer.training.checkpoint import CheckpointManager
from transformer.training.distributed.data_parallel import distribute_model
from transformer.training.step import TrainingState

RECIPE_FILE = "recipe.toml"


def build_trainer(plan: TrainingPlan, start: Start, checkpoints: CheckpointManager) -> Trainer:
    """Builds the trainer of a plan from the start of the run."""
    data, settings, context = plan.data, plan.settings, plan.context
    model = new_model(data.config, settings.seed, plan.backend, context)
    weight_notes = start.load_weights(model, data.config)
    distributed = distribute_model(new_objective(data, model, settings), model, context)
    optimizer = new_optimizer(distributed.model, settings)
    start.restore_optimizer(distributed.model, optimizer)
    if context.is_main:
        checkpoints.remove_obsolete(start.progress)
        replace_text(plan.folder / RECIPE_FILE, plan.recipe.to_toml())
    state = TrainingState(
        distributed.objective, optimizer, start.progress.step, settings.seed, plan.backend, settings.log_every, context
    )
    notes = [*plan.notes, *_lost_checkpoints(plan.folder, start), *weight_notes, *start.notes, *data.notes]
    return Trainer(plan, distributed, state, checkpoints, start.progress, notes)


def _lost_checkpoints(folder: Path, start: Start) -> list[str]:
    """Returns a warning if the run was trained before, but its checkpoints were removed."""
    log = folder / METRICS
    if start.progress.step or not log.exists() or not log.stat().st_size:
        return []
    return [f"warning: {folder} has the log of an earlier run, but none of its checkpoints; training starts anew"]
