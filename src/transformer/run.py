"""A whole run: from a recipe to a folder that holds a translator."""

import platform
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from transformer.averaging import average_bundles, replace_average, steps_to_average, stored_average
from transformer.bundle import Bundle, save_bundle
from transformer.data.prepare import Corpus, Preparation
from transformer.data.progress import shown_progress
from transformer.errors import ConfigError
from transformer.evaluation.scores import corpus_scores
from transformer.fine_tuning import read_start, take_over
from transformer.inspection.machine import machine
from transformer.models import family
from transformer.recipe import Recipe, fill_in, load_recipe
from transformer.reporting import write_report
from transformer.reporting.record import TRANSLATIONS, translation_lines
from transformer.resuming import (
    OPTIMIZER,
    Earlier,
    find_earlier,
    may_lack,
    record_of,
    refuse_changed_recipe,
    refuse_changed_texts,
    refuse_unknown_keys,
    restore_memory,
    restore_weights,
)
from transformer.settings import Settings
from transformer.storage.checkpoints import AVERAGE, MODEL, resolve_model
from transformer.storage.durable import replace_text
from transformer.text.pair import TokenizerPair
from transformer.training.averaging import running_mean_in_place
from transformer.training.checkpoint import Checkpoints
from transformer.training.distributed import World, join_world
from transformer.training.hardware import choose_hardware, keep_freed_memory
from transformer.training.interruption import Interruption, watch_signals
from transformer.training.loop import HIGHER_IS_BETTER, Hooks, steps_per_epoch, why_finished
from transformer.training.loop import train as train_loop
from transformer.training.objectives import TranslationObjective
from transformer.training.optimizer import make_optimizer
from transformer.training.optimizer_state import optimizer_tensors
from transformer.training.plan import choose_batch_tokens, plan_run
from transformer.training.progress import Progress
from transformer.training.randomness import reseed
from transformer.training.replicas import Replicas, gathered, replicate
from transformer.training.report import Reporter
from transformer.training.run_folder import fresh_folder, hold_run, nothing_left
from transformer.training.schedule import Schedule, make_schedule
from transformer.training.step import TrainingState
from transformer.training.tensorboard import TensorBoard
from transformer.training.validation import validation_loss
from transformer.transformer import Transformer
from transformer.translation import Translator

RECIPE_FILE, METRICS_FILE, TOKENS_FOLDER, BOARD_FOLDER = "recipe.toml", "metrics.jsonl", "tokens", "tensorboard"


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
    """

    folder: Path
    model: Path
    progress: Progress
    interruption: Interruption
    average_scores: dict[str, float] = field(default_factory=dict)
    is_main: bool = True


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
    keep_freed_memory()
    torch.set_num_threads(given.training.threads or torch.get_num_threads())
    with join_world(given.training) as world:
        quiet = quiet or not world.is_main
        notes: list[str] = []
        if fresh and world.from_main(str(fresh_folder(folder))) != str(folder):
            folder = Path(world.from_main(str(fresh_folder(folder))))
            notes.append(f"starts anew in {folder}")
        with hold_run(folder) if world.is_main else nullcontext():
            left = (RECIPE_FILE, TOKENS_FOLDER) if world.is_main else ()
            with nothing_left(folder, left), shown_progress(quiet=quiet) as progress:
                preparation = Preparation(given.data, given.training.seed, folder / TOKENS_FOLDER, progress)
                parts = _assemble(given, folder, preparation, allow_changed, notes, world)
            interruption = _train(parts, quiet=quiet)
    model = resolve_model(folder) if parts.progress.step else parts.checkpoints.folder(0) / MODEL
    return RunResult(folder, model, parts.progress, interruption, parts.average_scores, world.is_main)


def _train(parts: "_Parts", *, quiet: bool) -> Interruption:
    training, progress = parts.recipe.training, parts.progress
    path, max_steps = parts.folder / METRICS_FILE if parts.world.is_main else None, training.max_steps or 0
    board = TensorBoard(parts.folder / BOARD_FOLDER, progress.step) if training.tensorboard and path else None
    reporter = Reporter(path, max_steps, training.log_every, step=progress.step, quiet=quiet, board=board)
    try:
        for line in [*parts.opening(), *parts.plan()]:
            reporter.say(line)
        with watch_signals(training.stop_seconds) as interruption:

            def save(progress: Progress) -> None:
                reporter.sync()
                parts.save(progress)

            hooks = Hooks(parts.validate, save, reporter, interruption)
            train_loop(parts.state, parts.corpus.train, training, parts.schedule, progress, hooks)
        if progress.finished and parts.world.is_main:
            parts.average(reporter)
            write_report(parts.folder)
        return interruption
    finally:
        reporter.close()


@dataclass(frozen=True)
class _Parts:
    """What a run is made of, and its answers to the loop, which all ranks ask for together."""

    folder: Path
    recipe: Recipe
    corpus: Corpus
    tokenizers: TokenizerPair
    config: Settings
    replicas: Replicas
    state: TrainingState
    schedule: Schedule
    checkpoints: Checkpoints
    progress: Progress
    inputs: dict[str, str]
    notes: list[str]
    start: dict[str, Any] | None = None
    """The model that the run began with, where it fine-tunes one."""
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list[str])
    """Translations of the validation text, of the last validation."""
    average_scores: dict[str, float] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The ranks of the run."""
        return self.state.world

    @property
    def model(self) -> Transformer:
        """The model, whole; on rank 0 as `replicas.gather` last brought it together."""
        assert isinstance(self.replicas.whole, Transformer)
        return self.replicas.whole

    def validate(self) -> dict[str, float]:
        """Loss, perplexity, BLEU and chrF of the model on the validation pairs, worked out by rank 0."""
        with running_mean_in_place(self.state.optimizer):
            self.replicas.gather()
            return self.world.from_main(self._scores(self.model) if self.world.is_main else None)

    def _scores(self, model: Transformer) -> dict[str, float]:
        training = self.recipe.training
        objective = TranslationObjective(model, training.label_smoothing)
        scores = validation_loss(objective, self.corpus.validation, training.budget, self.state.hardware)
        sources, references = zip(*self.corpus.validation_text, strict=True)
        longest = self.corpus.report.longest_source
        translator = Translator(model, self.tokenizers, max_source_tokens=longest, batch_tokens=8192)
        translations = translator.translations(sources)  # `translate` would warn of every line that does not end yet
        self.outputs[:] = [translation.text for translation in translations]
        translated = corpus_scores(self.outputs, references)
        self.signatures.update({score.name.lower(): score.signature for score in translated})
        return scores | {score.name.lower(): score.value for score in translated}

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint whose model folder is a bundle: whole tensors, whatever the ranks hold of them."""
        with running_mean_in_place(self.state.optimizer):
            self.replicas.gather()
            tensors = {OPTIMIZER: gathered(optimizer_tensors(self.replicas.model, self.state.optimizer), self.world)}
            if self.world.is_main:
                bundle = Bundle(self.config, self.model, self.tokenizers, self._provenance(progress))
                facts = record_of(self.recipe, self.inputs)
                self.checkpoints.save(progress, facts, lambda folder: save_bundle(folder, bundle), tensors)
        if self.world.is_main and progress.best_step == progress.scored_step == progress.step:
            self._keep_translations()

    def average(self, reporter: Reporter) -> None:
        """Averages the checkpoints that the recipe asks for, validates the mean and keeps it as `RUN/average`."""
        metric = self.recipe.training.best_metric
        steps = [s for s in steps_to_average(self.progress, self.recipe.training) if self.checkpoints.is_whole(s)]
        stored = stored_average(self.folder)
        if stored and [source["step"] for source in stored.provenance["averaged"]] == steps:
            self.average_scores.update(stored.provenance["validation"]["scores"])
        elif len(steps) > 1:
            bundle = average_bundles([self.checkpoints.folder(step) / MODEL for step in steps])
            assert isinstance(bundle.model, Transformer)
            self.average_scores.update(self._scores(bundle.model.to(self.state.hardware.device)))
            score = HIGHER_IS_BETTER[metric] * self.average_scores[metric]
            figures = {"score": score if isfinite(score) else None, **self._validation(self.average_scores)}
            bundle.provenance["validation"] = figures
            replace_average(self.folder, bundle)
            reporter.average(steps, self.average_scores)
            if resolve_model(self.folder) == self.folder / AVERAGE:
                self._keep_translations()

    def _keep_translations(self) -> None:
        replace_text(self.folder / TRANSLATIONS, translation_lines(self.corpus.validation_text, self.outputs))

    def opening(self) -> list[str]:
        """What is said before the first step."""
        training = self.recipe.training
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        epochs = (training.max_steps or 0) / steps_per_epoch(self.corpus.train, training)
        lines = [
            *self.notes,
            *self.corpus.report.lines(),
            f"model: {self.config}",
            f"{parameters:,} parameters; {training.max_steps:,} steps, {epochs:.1f} epochs; {self.state.hardware}",
        ]
        if training.schedule == "cosine" and (training.max_steps or 0) > (training.decay_steps or 0):
            lines.append(f"note: the cosine ends at step {training.decay_steps:,}; beyond it the learning rate is 0")
        if self.start:
            lines.append(
                f"fine-tunes {self.start['model']} (SHA-256 {self.start['sha256'][:12]}...): learning rate up to "
                f"{training.learning_rate:.2g} after {training.warmup_steps} steps of warm-up"
            )
        if training.ema_decay:
            lines.append(f"the model is the running mean of the parameters (decay {training.ema_decay})")
        if self.world.size > 1:
            lines.append(_ranks_line(self.world, training.accumulation or 1))
        finished = why_finished(self.progress, training)
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
            "data": self.corpus.report.to_dict(),
            "step": progress.step,
            "validation": {"step": progress.scored_step, **self._validation(progress.scores)},
            "max_source_tokens": max(self.corpus.report.longest_source, (self.start or {}).get("max_source_tokens", 0)),
            "seconds": progress.seconds,
            "machine": machine(),
            "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def plan(self) -> list[str]:
        """What the rest of the run will cost; nothing where it is finished, or on several ranks."""
        if self.world.size > 1 or why_finished(self.progress, self.recipe.training):
            return []
        return plan_run(self.state, self.corpus.train, self.recipe.training)

    def _validation(self, scores: dict[str, float]) -> dict[str, Any]:
        finite = {name: value if isfinite(value) else None for name, value in scores.items()}
        return {"scores": finite, "signatures": self.signatures}


def prepare(recipe: Recipe, folder: Path, *, quiet: bool = False) -> Corpus:
    """Does what a run of the recipe does with its texts before its first step, and keeps it for `data.prepared`.

    Args:
        recipe: of the run.
        folder: where prepared data goes, whatever `data.prepared` says.
        quiet: show no progress.

    Raises:
        TransformerError: a wrong setting or unusable data.
    """
    start = read_start(recipe)
    data = recipe.data.model_copy(update={"prepared": None})
    with shown_progress(quiet=quiet) as progress:
        preparation = Preparation(data, recipe.training.seed, folder, progress)
        filled = fill_in(start.recipe if start else recipe, preparation.survey().pairs)
        return _prepare(filled, preparation, start.bundle if start else None)[2]


def _prepare(recipe: Recipe, preparation: Preparation, known: Bundle | None) -> tuple[TokenizerPair, Settings, Corpus]:
    """Tokenizers, configuration and corpus of a recipe filled in by the number of pairs."""
    tokenizers = known.tokenizers if known else preparation.train_tokenizers(recipe.tokenizer)
    assert recipe.model is not None
    sizes = {"src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size}
    config = type(recipe.model).model_validate({**recipe.model.model_dump(), **sizes})
    lengths = config.model_dump()["src_seq_len"], config.model_dump()["tgt_seq_len"]
    return tokenizers, config, preparation.prepare(tokenizers, lengths)


def _assemble(
    given: Recipe,
    folder: Path,
    preparation: Preparation,
    allow_changed: Collection[str],
    notes: list[str],
    world: World,
) -> _Parts:
    """Prepares data and model, from the start or from the newest checkpoint; rank 0 first, for the others to find."""
    checkpoints = Checkpoints(folder, given.training.keep_last, may_lack(allow_changed))
    with world.main_first():
        earlier = find_earlier(checkpoints)
        inputs = preparation.sums
        if earlier:
            refuse_changed_texts(earlier, inputs, given, allow_changed)
        start = None if earlier else read_start(given)
        given = take_over(given, earlier.recipe) if earlier else start.recipe if start else given
        if earlier and given.training.batch_tokens == "auto":
            settled = given.training.model_copy(update={"batch_tokens": earlier.recipe.training.batch_tokens})
            given = given.model_copy(update={"training": settled})
        pairs = preparation.survey().pairs
        recipe = fill_in(given, pairs)
        refuse_unknown_keys(allow_changed, recipe)
        if earlier:
            refuse_changed_recipe(earlier, recipe, allow_changed)
        known = earlier.bundle if earlier else start.bundle if start else None
        tokenizers, config, corpus = _prepare(recipe, preparation, known)
    if recipe.training.batch_tokens == "auto":
        recipe = _with_batch_tokens(recipe, config, corpus, world)
    epoch_steps = steps_per_epoch(corpus.train, recipe.training)
    recipe = _with_hardware(fill_in(recipe, pairs, epoch_steps, earlier.recipe if earlier else None), earlier, world)
    schedule = _schedule(recipe, config)
    hardware = choose_hardware(recipe.training.device, recipe.training.precision)
    model = _model(config, recipe.training.seed).to(hardware.device)
    if start:
        model.load_state_dict(start.bundle.model.state_dict())
    if earlier:
        restore_weights(earlier, model)
    replicas = replicate(TranslationObjective(model, recipe.training.label_smoothing), model, world)
    optimizer = make_optimizer(replicas.model, recipe.training)
    progress = earlier.checkpoint.progress if earlier else Progress()
    if earlier:
        restore_memory(earlier, replicas.model, optimizer)
    if world.is_main:
        if earlier:
            checkpoints.tidy(progress)
        replace_text(folder / RECIPE_FILE, recipe.to_toml())
    training = recipe.training
    state = TrainingState(
        replicas.objective, optimizer, progress.step, training.seed, hardware, training.log_every, world
    )
    notes = [*notes, *(earlier.warnings if earlier else ()), *corpus.notes]
    origin = start.origin if start else earlier.bundle.provenance.get("start") if earlier else None
    return _Parts(
        folder, recipe, corpus, tokenizers, config, replicas, state, schedule, checkpoints, progress, inputs, notes,
        origin,
    )  # fmt: skip


def _with_batch_tokens(recipe: Recipe, config: Settings, corpus: Corpus, world: World) -> Recipe:
    """Settles `batch_tokens="auto"` by trying batches on a model of the run's sizes; rank 0 decides."""
    training = recipe.training
    hardware = choose_hardware(training.device, training.precision)
    objective = TranslationObjective(_model(config, training.seed).to(hardware.device), training.label_smoothing)
    state = TrainingState(objective, make_optimizer(objective, training), 0, training.seed, hardware)
    tokens = world.from_main(choose_batch_tokens(state, corpus.train, training))
    return recipe.model_copy(update={"training": training.model_copy(update={"batch_tokens": tokens})})


def _with_hardware(recipe: Recipe, earlier: Earlier | None, world: World) -> Recipe:
    """Sets precision and accumulation where the recipe leaves them open: the run's own, or what fits to the machines.

    That is the precision that they are fast in, and a micro-batch a rank; both are then the run's for good.
    """
    training = recipe.training
    before = earlier.recipe.training if earlier else training
    precision = choose_hardware(training.device, training.precision or before.precision).precision
    accumulation = training.accumulation or before.accumulation or world.size
    update = {"precision": world.from_main(precision), "accumulation": accumulation}
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def _ranks_line(world: World, accumulation: int) -> str:
    """What is said of the ranks, and of those that have nothing to do."""
    shares = {"ddp": "each with the whole model", "fsdp": "each with a part of the model"}
    idle = -accumulation % world.size
    line = f"{world.size} ranks, {shares[world.strategy]}; micro-batches an update: {accumulation}"
    if not idle:
        return line
    fitting = accumulation + idle
    return f"{line}; note: {idle} of the ranks idle in the last round of each; training.accumulation={fitting} fits"


def _model(config: Settings, seed: int) -> Transformer:
    reseed(seed)
    model = family(str(config.model_dump()["family"])).build(config)
    if not isinstance(model, Transformer):
        raise ConfigError(f"{type(model).__name__} does not translate; choose model.family='transformer'")
    return model


def _schedule(recipe: Recipe, config: Settings) -> Schedule:
    training = recipe.training
    assert training.decay_steps is not None
    assert training.warmup_steps is not None
    return make_schedule(
        training.schedule,
        d_model=config.model_dump()["d_model"],
        peak=training.learning_rate,
        warmup_steps=training.warmup_steps,
        decay_steps=training.decay_steps,
    )
