"""A whole run: from a recipe to a folder that holds a translator."""

import platform
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from transformer.bundle import Bundle, save_bundle
from transformer.data.prepare import Corpus, Preparation
from transformer.data.progress import shown_progress
from transformer.errors import ConfigError
from transformer.evaluation.scores import corpus_scores
from transformer.models import family
from transformer.recipe import Recipe, fill_in, load_recipe
from transformer.resuming import (
    OPTIMIZER,
    Earlier,
    find_earlier,
    may_lack,
    record_of,
    refuse_changed_recipe,
    refuse_changed_texts,
    refuse_unknown_keys,
    restore,
)
from transformer.settings import Settings
from transformer.storage.checkpoints import MODEL
from transformer.storage.durable import replace_text
from transformer.text.pair import TokenizerPair
from transformer.training.checkpoint import Checkpoints
from transformer.training.hardware import choose_hardware, keep_freed_memory
from transformer.training.interruption import Interruption, watch_signals
from transformer.training.loop import Hooks, steps_per_epoch, why_finished
from transformer.training.loop import train as train_loop
from transformer.training.objectives import TranslationObjective
from transformer.training.optimizer import make_optimizer
from transformer.training.optimizer_state import optimizer_tensors
from transformer.training.progress import Progress
from transformer.training.randomness import reseed
from transformer.training.report import Reporter
from transformer.training.run_folder import fresh_folder, hold_run, nothing_left
from transformer.training.schedule import Schedule, make_schedule
from transformer.training.step import TrainingState
from transformer.training.validation import validation_loss
from transformer.transformer import Transformer
from transformer.translation import Translator

RECIPE_FILE, METRICS_FILE, TOKENS_FOLDER = "recipe.toml", "metrics.jsonl", "tokens"


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        folder: of the run.
        model: the bundle of the best validation.
        progress: figures reached.
        interruption: the signal that ended it early, if any.
    """

    folder: Path
    model: Path
    progress: Progress
    interruption: Interruption


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
    notes: list[str] = []
    if fresh and fresh_folder(folder) != folder:
        folder = fresh_folder(folder)
        notes.append(f"starts anew in {folder}")
    keep_freed_memory()
    torch.set_num_threads(given.training.threads or torch.get_num_threads())
    with hold_run(folder):
        with nothing_left(folder, (RECIPE_FILE, TOKENS_FOLDER)), shown_progress(quiet=quiet) as progress:
            preparation = Preparation(given.data, given.training.seed, folder / TOKENS_FOLDER, progress)
            parts = _assemble(given, folder, preparation, allow_changed, notes)
        interruption = _train(parts, quiet=quiet)
    progress = parts.progress
    best = progress.best_step if progress.best_step is not None else progress.step
    return RunResult(folder, parts.checkpoints.folder(best) / MODEL, progress, interruption)


def _train(parts: "_Parts", *, quiet: bool) -> Interruption:
    training, progress = parts.recipe.training, parts.progress
    path, max_steps = parts.folder / METRICS_FILE, training.max_steps or 0
    reporter = Reporter(path, max_steps, training.log_every, step=progress.step, quiet=quiet)
    try:
        for line in parts.opening():
            reporter.say(line)
        with watch_signals(training.stop_seconds) as interruption:

            def save(progress: Progress) -> None:
                reporter.sync()
                parts.save(progress)

            hooks = Hooks(parts.validate, save, reporter, interruption)
            train_loop(parts.state, parts.corpus.train, training, parts.schedule, progress, hooks)
        return interruption
    finally:
        reporter.close()


@dataclass(frozen=True)
class _Parts:
    """What a run is made of, and its answers to the loop."""

    folder: Path
    recipe: Recipe
    corpus: Corpus
    tokenizers: TokenizerPair
    config: Settings
    model: Transformer
    state: TrainingState
    schedule: Schedule
    checkpoints: Checkpoints
    progress: Progress
    inputs: dict[str, str]
    notes: list[str]
    signatures: dict[str, str] = field(default_factory=dict)

    def validate(self) -> dict[str, float]:
        """Loss, perplexity, BLEU and chrF on the validation pairs."""
        state, budget = self.state, self.recipe.training.batch_tokens
        scores = validation_loss(state.objective, self.corpus.validation, budget, state.hardware)
        sources, references = zip(*self.corpus.validation_text, strict=True)
        longest = self.corpus.report.longest_source
        translator = Translator(self.model, self.tokenizers, max_source_tokens=longest, batch_tokens=8192)
        translations = translator.translations(sources)  # `translate` would warn of every line that does not end yet
        translated = corpus_scores([translation.text for translation in translations], references)
        self.signatures.update({score.name.lower(): score.signature for score in translated})
        return scores | {score.name.lower(): score.value for score in translated}

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint whose model folder is a bundle."""
        bundle = Bundle(self.config, self.model, self.tokenizers, self._provenance(progress))
        tensors = {OPTIMIZER: optimizer_tensors(self.model, self.state.optimizer)}
        facts = record_of(self.recipe, self.inputs)
        self.checkpoints.save(progress, facts, lambda folder: save_bundle(folder, bundle), tensors)

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
            "data": self.corpus.report.to_dict(),
            "step": progress.step,
            "validation": {
                "step": progress.scored_step,
                "scores": {name: value if isfinite(value) else None for name, value in progress.scores.items()},
                "signatures": self.signatures,
            },
            "max_source_tokens": self.corpus.report.longest_source,
            "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def prepare(recipe: Recipe, folder: Path, *, quiet: bool = False) -> Corpus:
    """Does what a run of the recipe does with its texts before its first step, and keeps it for `data.prepared`.

    Args:
        recipe: of the run.
        folder: where prepared data goes, whatever `data.prepared` says.
        quiet: show no progress.

    Raises:
        TransformerError: a wrong setting or unusable data.
    """
    with shown_progress(quiet=quiet) as progress:
        data = recipe.data.model_copy(update={"prepared": None})
        return _prepare(recipe, Preparation(data, recipe.training.seed, folder, progress)).corpus


@dataclass(frozen=True)
class _Prepared:
    """What comes before the model: the recipe filled in by the number of pairs, tokenizers and corpus."""

    recipe: Recipe
    pairs: int
    tokenizers: TokenizerPair
    config: Settings
    corpus: Corpus


def _prepare(
    given: Recipe, preparation: Preparation, earlier: Earlier | None = None, allow_changed: Collection[str] = ()
) -> _Prepared:
    pairs = preparation.survey().pairs
    recipe = fill_in(given, pairs)
    refuse_unknown_keys(allow_changed, recipe)
    if earlier:
        refuse_changed_recipe(earlier, recipe, allow_changed)
    tokenizers = earlier.bundle.tokenizers if earlier else preparation.train_tokenizers(recipe.tokenizer)
    assert recipe.model is not None
    sizes = {"src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size}
    config = type(recipe.model).model_validate({**recipe.model.model_dump(), **sizes})
    lengths = config.model_dump()["src_seq_len"], config.model_dump()["tgt_seq_len"]
    return _Prepared(recipe, pairs, tokenizers, config, preparation.prepare(tokenizers, lengths))


def _assemble(
    given: Recipe, folder: Path, preparation: Preparation, allow_changed: Collection[str], notes: list[str]
) -> _Parts:
    """Prepares data and model, from the start or from the newest checkpoint."""
    checkpoints = Checkpoints(folder, given.training.keep_last, may_lack(allow_changed))
    earlier = find_earlier(checkpoints)
    inputs = preparation.sums
    if earlier:
        refuse_changed_texts(earlier, inputs, given, allow_changed)
    prepared = _prepare(given, preparation, earlier, allow_changed)
    recipe, tokenizers, config, corpus = prepared.recipe, prepared.tokenizers, prepared.config, prepared.corpus
    epoch_steps = steps_per_epoch(corpus.train, recipe.training)
    recipe = _with_precision(fill_in(recipe, prepared.pairs, epoch_steps, earlier.recipe if earlier else None), earlier)
    schedule = _schedule(recipe, config)
    hardware = choose_hardware(recipe.training.device, recipe.training.precision)
    model = _model(config, recipe.training.seed).to(hardware.device)
    optimizer = make_optimizer(model, recipe.training)
    progress = earlier.checkpoint.progress if earlier else Progress()
    if earlier:
        restore(earlier, model, optimizer)
        checkpoints.tidy(progress)
    replace_text(folder / RECIPE_FILE, recipe.to_toml())
    objective = TranslationObjective(model, recipe.training.label_smoothing)
    state = TrainingState(objective, optimizer, progress.step, recipe.training.seed, hardware)
    notes = [*notes, *(earlier.warnings if earlier else ()), *corpus.notes]
    return _Parts(
        folder, recipe, corpus, tokenizers, config, model, state, schedule, checkpoints, progress, inputs, notes
    )


def _with_precision(recipe: Recipe, earlier: Earlier | None) -> Recipe:
    """Sets the precision that the recipe leaves open: the run's own, or what the hardware is fast in."""
    training = recipe.training
    given = training.precision or (earlier.recipe.training.precision if earlier else None)
    precision = choose_hardware(training.device, given).precision
    return recipe.model_copy(update={"training": training.model_copy(update={"precision": precision})})


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
