"""What a run is made of, and its answers to the loop."""

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from torch import nn

from transformer.bundle import Bundle, save_bundle
from transformer.reporting.record import TRANSLATIONS
from transformer.run.checkpoint_averaging import average_bundles, replace_average, steps_to_average, stored_average
from transformer.run.recipe import Recipe
from transformer.run.resume import OPTIMIZER, record_of
from transformer.run.task import Task, TaskData
from transformer.runtime.allocator import trim_heap
from transformer.runtime.machine import machine
from transformer.storage.atomic import replace_text
from transformer.storage.checkpoints import AVERAGE, MODEL, checkpoint_steps, resolve_model
from transformer.training.checkpoint import CheckpointManager
from transformer.training.distributed.data_parallel import DistributedModel, gather_on_main
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.loop import HIGHER_IS_BETTER, finish_reason, steps_per_epoch
from transformer.training.monitoring.progress import Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.ema import use_ema_parameters
from transformer.training.optim.schedule import Schedule
from transformer.training.optim.state_dict import optimizer_tensors
from transformer.training.planning.plan import plan_run
from transformer.training.step import TrainingState


@dataclass(frozen=True)
class Trainer:
    """What a run is made of, and its answers to the loop, which all ranks ask for together."""

    folder: Path
    recipe: Recipe
    task: Task
    material: TaskData
    distributed: DistributedModel
    state: TrainingState
    schedule: Schedule
    checkpoints: CheckpointManager
    progress: Progress
    inputs: dict[str, str]
    notes: list[str]
    start: dict[str, Any] | None = None
    """The model that the run began with, where it fine-tunes one."""
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list[str])
    """What the model wrote at the last validation."""
    average_scores: dict[str, float] = field(default_factory=dict)

    @property
    def context(self) -> DistributedContext:
        """The ranks of the run."""
        return self.state.context

    @property
    def model(self) -> nn.Module:
        """The model, whole; on rank 0 as `distributed.gather` last brought it together."""
        return self.distributed.whole

    def validate(self) -> dict[str, float]:
        """The task's figures of the model on the validation examples, worked out by rank 0."""
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            return self.context.broadcast(self._scores(self.model) if self.context.is_main else None)

    def _scores(self, model: nn.Module) -> dict[str, float]:
        trim_heap()  # those that batches leave are of other sizes than what validation asks for, and so back
        found = self.task.scores(model, self.recipe.training, self.material, self.state.backend)
        trim_heap()
        self.outputs[:] = found.outputs
        self.signatures.update(found.signatures)
        return found.values

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint whose model folder is a bundle: whole tensors, whatever the ranks hold of them."""
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            tensors = {
                OPTIMIZER: gather_on_main(optimizer_tensors(self.distributed.model, self.state.optimizer), self.context)
            }
            if self.context.is_main:
                bundle = Bundle(self.material.config, self.model, self.material.text, self._provenance(progress))
                facts = record_of(self.recipe, self.inputs)
                self.checkpoints.save(progress, facts, lambda folder: save_bundle(folder, bundle), tensors)
        if self.context.is_main and progress.best_step == progress.scored_step == progress.step:
            self._keep_translations()

    def average(self, reporter: Reporter) -> None:
        """Averages the checkpoints that the recipe asks for, validates the mean and keeps it as `RUN/average`."""
        training = self.recipe.training
        metric, asked = training.best_metric, training.average_last or training.average_best or 0
        wanted = steps_to_average(self.progress, training, checkpoint_steps(self.folder))
        steps = [step for step in wanted if self.checkpoints.is_intact(step)]
        if len(steps) < asked:
            reporter.log(f"warning: of {asked} checkpoints to be averaged, {len(steps)} are there and whole")
        stored = stored_average(self.folder)
        if stored and [source["step"] for source in stored.provenance["averaged"]] == steps:
            self.average_scores.update(stored.provenance["validation"]["scores"])
        elif len(steps) > 1:
            bundle = average_bundles([self.checkpoints.folder(step) / MODEL for step in steps])
            self.average_scores.update(self._scores(bundle.model.to(self.state.backend.device)))
            score = HIGHER_IS_BETTER[metric] * self.average_scores[metric]
            figures = {"score": score if isfinite(score) else None, **self._validation(self.average_scores)}
            bundle.provenance["validation"] = figures
            replace_average(self.folder, bundle)
            reporter.average(steps, self.average_scores)
            if resolve_model(self.folder) == self.folder / AVERAGE:
                self._keep_translations()

    def _keep_translations(self) -> None:
        if kept := self.task.kept(self.material, self.outputs):
            replace_text(self.folder / TRANSLATIONS, kept)

    def opening(self) -> list[str]:
        """What is said before the first step."""
        training = self.recipe.training
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        epochs = (training.max_steps or 0) / steps_per_epoch(self.material.train, training)
        lines = [
            *self.notes,
            *self.material.lines,
            f"model: {self.material.config}",
            f"{parameters:,} parameters; {training.max_steps:,} steps, {epochs:.1f} epochs; {self.state.backend}",
        ]
        warmup_steps, decay_steps = training.warmup_steps or 0, training.decay_steps or 0
        if training.schedule == "cosine" and (training.max_steps or 0) > max(warmup_steps, decay_steps):
            lines.append(
                f"note: the cosine ends at step {decay_steps:,}; beyond it the learning rate is 0; "
                f"--set training.decay_steps={training.max_steps} --allow-changed training.decay_steps moves the end"
            )
        if warmup_steps >= (training.max_steps or 0):
            lines.append(
                f"note: the warm-up of {warmup_steps:,} steps lasts as long as the run; give a shorter one "
                "(training.warmup_steps) and a rate (training.learning_rate), which otherwise rises as it gets shorter"
            )
        if self.start:
            lines.append(
                f"fine-tunes {self.start['model']} (SHA-256 {self.start['sha256'][:12]}...): learning rate up to "
                f"{training.learning_rate:.2g} after {training.warmup_steps} steps of warm-up"
            )
        if training.ema_decay:
            lines.append(f"the model is the running mean of the parameters (decay {training.ema_decay})")
        if self.context.size > 1:
            lines.append(_ranks_line(self.context, training.accumulation or 1))
        finished = finish_reason(self.progress, training)
        if finished:
            lines.append(
                f"already finished by {finished} at step {self.progress.step}; raise training.{finished} to go on"
            )
        elif self.progress.step:
            lines.append(f"continues at step {self.progress.step}")
        return lines

    def _provenance(self, progress: Progress) -> dict[str, Any]:
        packages = ("transformer", "torch", "tokenizers", "sacrebleu")
        return {
            "recipe": self.recipe.model_dump(exclude_none=True),
            **({"start": self.start} if self.start else {}),
            "data": self.material.facts,
            "step": progress.step,
            "validation": {"step": progress.scored_step, **self._validation(progress.scores)},
            **self._longest(),
            "seconds": progress.seconds,
            "machine": {**machine(), "device": self.state.backend.device.type},
            "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _longest(self) -> dict[str, int]:
        """The longest source that the model has seen, in this run or the one it began with."""
        own = self.material.provenance.get("max_source_tokens")
        before = (self.start or {}).get("max_source_tokens", 0)
        return {} if own is None else {"max_source_tokens": max(own, before)}

    def plan(self) -> list[str]:
        """What the rest of the run will cost, found out by all ranks together; nothing where it is finished."""
        if finish_reason(self.progress, self.recipe.training):
            return []
        return plan_run(self.state, self.material.train, self.recipe.training, self._rehearse)

    def _rehearse(self) -> None:
        """What validation takes most memory for, done once before the first step."""
        self.distributed.gather()
        if self.context.is_main:
            trim_heap()
            self.task.warm_up_validation(self.model, self.recipe.training, self.material)
            trim_heap()

    def _validation(self, scores: dict[str, float]) -> dict[str, Any]:
        finite = {name: value if isfinite(value) else None for name, value in scores.items()}
        return {"scores": finite, "signatures": self.signatures}


def _ranks_line(context: DistributedContext, accumulation: int) -> str:
    """What is said of the ranks, and of those that have nothing to do."""
    shares = {"ddp": "each with the whole model", "fsdp": "each with a part of the model"}
    idle = -accumulation % context.size
    line = f"{context.size} ranks, {shares[context.strategy]}; micro-batches an update: {accumulation}"
    if not idle:
        return line
    fitting = accumulation + idle
    return f"{line}; note: {idle} of the ranks idle in the last round of each; training.accumulation={fitting} fits"
