"""The trainer: the components of a run, and the callbacks of its training loop."""

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from torch import nn

from transformer.bundle import Bundle, save_bundle
from transformer.data.source_text import SourceText
from transformer.reporting.record import TRANSLATIONS
from transformer.run.checkpoint_averaging import average_bundles, replace_average, steps_to_average, stored_average
from transformer.run.checkpoint_space import describe_space
from transformer.run.plan_table import format_table, model_rows, training_rows
from transformer.run.recipe import Recipe
from transformer.run.resume import checkpoint_facts
from transformer.run.start import OPTIMIZER
from transformer.run.task import Task, TaskData
from transformer.runtime.allocator import trim_heap
from transformer.runtime.machine import machine
from transformer.storage.atomic import replace_text
from transformer.storage.checkpoint_paths import AVERAGE, MODEL, checkpoint_steps, resolve_model
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
    """Components of a run, and the callbacks of its training loop, which all ranks call together."""

    folder: Path
    recipe: Recipe
    task: Task
    task_data: TaskData
    distributed: DistributedModel
    state: TrainingState
    schedule: Schedule
    checkpoints: CheckpointManager
    progress: Progress
    notes: list[str]
    origin: dict[str, Any] | None = None
    """Provenance entry of the pretrained model; None if the run does not fine-tune one."""
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list[str])
    """Texts that the model generated in the last validation."""
    average_scores: dict[str, float] = field(default_factory=dict)

    @property
    def context(self) -> DistributedContext:
        """The ranks of the run."""
        return self.state.context

    @property
    def model(self) -> nn.Module:
        """The unsharded model; on rank 0, with the parameters of the last `distributed.gather`."""
        return self.distributed.whole

    def validate(self) -> dict[str, float]:
        """Returns the scores of the model on the validation examples, computed by rank 0."""
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            return self.context.broadcast(self._scores(self.model) if self.context.is_main else None)

    def _scores(self, model: nn.Module) -> dict[str, float]:
        trim_heap()  # free blocks of training batches do not fit the sizes that validation allocates, nor the reverse
        scores = self.task.scores(model, self.recipe.training, self.task_data, self.state.backend)
        trim_heap()
        self.outputs[:] = scores.outputs
        self.signatures.update(scores.signatures)
        return scores.values

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint with an unsharded model bundle and optimizer state."""
        with use_ema_parameters(self.state.optimizer):
            self.distributed.gather()
            tensors = {
                OPTIMIZER: gather_on_main(optimizer_tensors(self.distributed.model, self.state.optimizer), self.context)
            }
            if self.context.is_main:
                bundle = Bundle(self.task_data.config, self.model, self.task_data.text, self._provenance(progress))
                facts = checkpoint_facts(self.recipe, self.task.checksums)
                self.checkpoints.save(progress, facts, lambda folder: save_bundle(folder, bundle), tensors)
        if self.context.is_main and progress.best_step == progress.scored_step == progress.step:
            self._store_translations()

    def average(self, reporter: Reporter) -> None:
        """Averages the checkpoints that the recipe asks for, validates the average and saves it as `RUN/average`."""
        training = self.recipe.training
        metric, n_requested = training.best_metric, training.average_last or training.average_best or 0
        candidates = steps_to_average(self.progress, training, checkpoint_steps(self.folder))
        steps = [step for step in candidates if self.checkpoints.is_intact(step)]
        if len(steps) < n_requested:
            reporter.log(f"warning: of {n_requested} checkpoints to be averaged, only {len(steps)} are intact")
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
                self._store_translations()

    def _store_translations(self) -> None:
        if text := self.task.translations_jsonl(self.task_data, self.outputs):
            replace_text(self.folder / TRANSLATIONS, text)

    def opening_lines(self) -> list[str]:
        """Returns the lines that are logged before the first step."""
        training = self.recipe.training
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        epochs = (training.max_steps or 0) / steps_per_epoch(self.task_data.train, training)
        space, warning = describe_space(self.folder, parameters, training)
        lines = [
            *self.notes,
            *format_table([
                *self.task_data.rows,
                *model_rows(self.task_data.config, parameters),
                *training_rows(training, epochs, self.schedule(training.warmup_steps or 1)),
                ("checkpoints", space),
                ("device", str(self.state.backend)),
            ]),
            *([warning] if warning else []),
        ]  # fmt: skip
        warmup_steps, decay_steps = training.warmup_steps or 0, training.decay_steps or 0
        if training.schedule == "cosine" and (training.max_steps or 0) > max(warmup_steps, decay_steps):
            lines.append(
                f"note: the cosine schedule ends at step {decay_steps:,}, after which the learning rate is 0; "
                f"extend it with --set training.decay_steps={training.max_steps} --allow-changed training.decay_steps"
            )
        if warmup_steps >= (training.max_steps or 0):
            lines.append(
                f"note: the warm-up of {warmup_steps:,} steps lasts as long as the run; set a shorter "
                "training.warmup_steps, and set training.learning_rate too, "
                "because its default rises as the warm-up gets shorter"
            )
        if self.origin:
            lines.append(
                f"fine-tunes {self.origin['model']} (SHA-256 {self.origin['sha256'][:12]}...): learning rate up to "
                f"{training.learning_rate:.2g} after {training.warmup_steps} steps of warm-up"
            )
        if training.ema_decay:
            lines.append(f"the model is the running mean of the parameters (decay {training.ema_decay})")
        if self.context.size > 1:
            lines.append(_describe_ranks(self.context, training.accumulation or 1))
        finished = finish_reason(self.progress, training)
        if finished:
            lines.append(
                f"already finished by {finished} at step {self.progress.step}; raise training.{finished} to continue"
            )
        elif self.progress.step:
            lines.append(f"continues at step {self.progress.step}")
        return lines

    def _provenance(self, progress: Progress) -> dict[str, Any]:
        packages = ("transformer", "torch", "tokenizers", "sacrebleu")
        return {
            "recipe": self.recipe.model_dump(exclude_none=True),
            **({"start": self.origin} if self.origin else {}),
            "data": self.task_data.facts,
            "step": progress.step,
            "validation": {"step": progress.scored_step, **self._validation(progress.scores)},
            **self._source_facts(),
            "seconds": progress.seconds,
            "machine": {**machine(), "device": self.state.backend.device.type},
            "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _source_facts(self) -> dict[str, Any]:
        """Returns the provenance entries of the task; lengths and characters are those of pretraining, too."""
        facts, origin = dict(self.task_data.provenance), self.origin or {}
        if "max_source_tokens" in facts:
            facts["max_source_tokens"] = max(facts["max_source_tokens"], origin.get("max_source_tokens", 0))
        if "source_text" in facts and self.origin is not None:
            source_text = SourceText.from_dict(facts["source_text"])
            characters = (origin.get("source_text") or {}).get("characters")
            source_text.add_characters(None if characters is None else set(characters))
            facts["source_text"] = source_text.to_dict()
        return facts

    def plan_lines(self, reporter: Reporter) -> list[str]:
        """Estimates time and memory of the rest of the run, on all ranks together; empty if the run is finished."""
        if finish_reason(self.progress, self.recipe.training):
            return []

        def warm_up_validation() -> None:
            with reporter.waiting("trying a validation"):
                self._warm_up_validation()

        with reporter.waiting("trying the largest batches"):
            lines = plan_run(self.state, self.task_data.train, self.recipe.training, warm_up_validation)
        rows = (line.partition(": ") if line.startswith("memory: ") else ("work", "", line) for line in lines)
        return format_table((title, text) for title, _, text in rows)

    def _warm_up_validation(self) -> None:
        """Runs the part of validation with the highest peak memory once before the first step."""
        self.distributed.gather()
        if self.context.is_main:
            trim_heap()
            self.task.warm_up_validation(self.model, self.recipe.training, self.task_data)
            trim_heap()

    def _validation(self, scores: dict[str, float]) -> dict[str, Any]:
        finite = {name: value if isfinite(value) else None for name, value in scores.items()}
        return {"scores": finite, "signatures": self.signatures}


def _describe_ranks(context: DistributedContext, accumulation: int) -> str:
    """Describes the ranks, with a note if some of them are idle."""
    shares = {"ddp": "each with the whole model", "fsdp": "each with a part of the model"}
    n_idle = -accumulation % context.size
    line = f"{context.size} ranks, {shares[context.strategy]}; micro-batches an update: {accumulation}"
    if not n_idle:
        return line
    divisible = accumulation + n_idle
    return (
        f"{line}; note: {n_idle} of them idle in the last round of each update; training.accumulation={divisible} fits"
    )
