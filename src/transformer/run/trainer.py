"""The trainer: the components of a run, and the callbacks of its training loop."""

from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from torch import nn

from transformer.bundle import Bundle, save_bundle
from transformer.reporting.record import METRICS, TRANSLATIONS
from transformer.run.checkpoint_averaging import average_bundles, replace_average, steps_to_average, stored_average
from transformer.run.new_tokens import kept_rows
from transformer.run.plan import TrainingPlan
from transformer.run.provenance import model_provenance, validation_figures
from transformer.run.resume import checkpoint_facts
from transformer.run.setup import new_model, new_objective
from transformer.run.start import OPTIMIZER, Start
from transformer.run.task import Scores
from transformer.runtime.allocator import trim_heap
from transformer.storage.atomic import replace_text
from transformer.storage.checkpoint_paths import AVERAGE, MODEL, checkpoint_steps, resolve_model
from transformer.training.checkpoint import CheckpointManager
from transformer.training.distributed.data_parallel import DistributedModel, distribute_model, gather_on_main
from transformer.training.freezing import trained_parameters
from transformer.training.loop import HIGHER_IS_BETTER
from transformer.training.monitoring.progress import Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.ema import use_ema_parameters
from transformer.training.optim.state_dict import optimizer_tensors
from transformer.training.step import TrainingState

RECIPE_FILE = "recipe.toml"


@dataclass
class Trainer:
    """Components of a run, and the callbacks of its training loop, which all ranks call together.

    Attributes:
        plan: Plan of the run.
        distributed: The model and its objective, on all ranks.
        state: What a training step reads and changes.
        checkpoints: Checkpoints of the run.
        progress: Progress of the run.
        notes: Notes and warnings, to be logged.
        validated: Results of the last validation.
    """

    plan: TrainingPlan
    distributed: DistributedModel
    state: TrainingState
    checkpoints: CheckpointManager
    progress: Progress
    notes: list[str]
    validated: Scores = field(default=Scores({}))

    @property
    def n_trained(self) -> int:
        """Number of parameters that are trained, on all ranks together."""
        return trained_parameters(self.distributed.model, self.state.kept_rows)

    def validate(self) -> dict[str, float]:
        """Returns the scores of the model on the validation examples, computed by rank 0."""
        context = self.plan.context
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            return context.broadcast(self._score(self.distributed.whole) if context.is_main else None)

    def _score(self, model: nn.Module) -> dict[str, float]:
        trim_heap()  # free blocks of training batches do not fit the sizes that validation allocates, nor the reverse
        self.validated = self.plan.data.scores(model, self.plan.settings, self.plan.backend)
        trim_heap()
        return self.validated.values

    def warm_up_validation(self) -> None:
        """Runs the part of validation with the highest peak memory once before the first step."""
        self.distributed.gather()
        if self.plan.context.is_main:
            trim_heap()
            self.plan.data.warm_up_validation(self.distributed.whole, self.plan.settings)
            trim_heap()

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint with an unsharded model bundle and optimizer state."""
        plan = self.plan
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            state = optimizer_tensors(self.distributed.model, self.state.optimizer)
            tensors = {OPTIMIZER: gather_on_main(state, plan.context)}
            if plan.context.is_main:
                provenance = model_provenance(plan, progress, self.validated.signatures)
                if plan.settings.freeze:
                    provenance["trained_parameters"] = self.n_trained
                bundle = Bundle(plan.data.config, self.distributed.whole, plan.data.text, provenance)
                facts = checkpoint_facts(plan.recipe, plan.checksums)
                self.checkpoints.save(progress, facts, lambda folder: save_bundle(folder, bundle), tensors)
        if plan.context.is_main and progress.best_step == progress.scored_step == progress.step:
            self._store_translations()

    def average(self, reporter: Reporter) -> dict[str, float]:
        """Averages the checkpoints that the recipe asks for, validates the average and saves it as `RUN/average`.

        Returns:
            The scores of the average; empty if none was computed.
        """
        folder, settings = self.plan.folder, self.plan.settings
        candidates = steps_to_average(self.progress, settings, checkpoint_steps(folder))
        steps = [step for step in candidates if self.checkpoints.is_intact(step)]
        if len(steps) < settings.n_averaged:
            reporter.log(f"warning: of {settings.n_averaged} checkpoints to be averaged, only {len(steps)} are intact")
        stored = stored_average(folder)
        if stored and [source["step"] for source in stored.provenance["averaged"]] == steps:
            return stored.provenance["validation"]["scores"]
        if len(steps) < 2:
            return {}
        bundle = average_bundles([self.checkpoints.folder(step) / MODEL for step in steps])
        scores = self._score(bundle.model.to(self.plan.backend.device))
        score = HIGHER_IS_BETTER[settings.best_metric] * scores[settings.best_metric]
        figures = {"score": score if isfinite(score) else None, **validation_figures(self.validated)}
        bundle.provenance["validation"] = figures
        replace_average(folder, bundle)
        reporter.average(steps, scores)
        if resolve_model(folder) == folder / AVERAGE:
            self._store_translations()
        return scores

    def _store_translations(self) -> None:
        if text := self.plan.data.translations_jsonl(self.validated.outputs):
            replace_text(self.plan.folder / TRANSLATIONS, text)


def build_trainer(plan: TrainingPlan, start: Start, checkpoints: CheckpointManager) -> Trainer:
    """Builds the trainer of a plan from the start of the run."""
    data, settings, context = plan.data, plan.settings, plan.context
    model = new_model(data.config, settings.seed, plan.backend, context)
    weight_notes = start.load_weights(model, data.config, data.text)
    objective = new_objective(data, model, settings)
    kept = kept_rows(model, settings.freeze, plan.origin, data.text)
    distributed = distribute_model(objective, model, context)
    optimizer = make_optimizer(distributed.model, settings.adam_betas, settings.adam_eps, settings.weight_decay, kept)
    start.restore_optimizer(distributed.model, optimizer)
    if context.is_main:
        checkpoints.remove_obsolete(start.progress)
        replace_text(plan.folder / RECIPE_FILE, plan.recipe.to_toml())
    backend = plan.backend
    if settings.quantization_aware_steps:
        backend = replace(backend, quantized_from=max(0, settings.max_steps - settings.quantization_aware_steps))
    state = TrainingState(
        distributed.objective, optimizer, start.progress.step, settings.seed, backend, settings.log_every, context, kept
    )
    notes = [*plan.notes, *_lost_checkpoints(plan.folder, start), *weight_notes, *start.notes, *data.notes]
    return Trainer(plan, distributed, state, checkpoints, start.progress, notes)


def _lost_checkpoints(folder: Path, start: Start) -> list[str]:
    """Returns a warning if the run was trained before, but its checkpoints were removed."""
    log = folder / METRICS
    if checkpoint_steps(folder) or not log.exists() or not log.stat().st_size:
        return []
    return [f"warning: {folder} has the log of an earlier run, but none of its checkpoints; training starts anew"]
