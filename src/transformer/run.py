"""A whole run: from a recipe to a folder that holds a translator."""

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.data.prepare import Corpus, Survey, prepare, survey, train_tokenizers
from transformer.errors import CheckpointError, ConfigError
from transformer.evaluation.scores import corpus_scores
from transformer.models import family
from transformer.recipe import Recipe, fill_in, load_recipe
from transformer.text.pair import TokenizerPair
from transformer.training.checkpoint import Checkpoints, Progress
from transformer.training.interruption import Interruption, watch_signals
from transformer.training.loop import Hooks, steps_per_epoch
from transformer.training.loop import train as train_loop
from transformer.training.memory import keep_freed_memory
from transformer.training.objectives import TranslationObjective
from transformer.training.optimizer import make_optimizer
from transformer.training.randomness import reseed
from transformer.training.report import Reporter
from transformer.training.schedule import Schedule, make_schedule
from transformer.training.step import TrainingState
from transformer.training.validation import validation_loss
from transformer.transformer import Transformer
from transformer.translation import Translator

RECIPE_FILE, DATA_REPORT, METRICS = "recipe.toml", "data.json", "metrics.jsonl"


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


def train(recipe: Recipe | Path | str, run: Path | str, *, quiet: bool = False) -> RunResult:
    """Trains the model of a recipe; the same call on an unfinished run continues it.

    Args:
        recipe: a recipe, or the path of its file.
        run: folder of the run, made if missing.
        quiet: show nothing.

    Raises:
        TransformerError: of the kind that fits: a wrong setting, unusable data, a folder of another run, a loss that
            is not finite.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(Path(recipe))
    return _Run(recipe, Path(run), quiet=quiet).train()


class _Run:
    """Puts the parts together and answers the loop's calls."""

    def __init__(self, recipe: Recipe, folder: Path, *, quiet: bool) -> None:
        self.given, self.folder, self.quiet = recipe, folder, quiet
        self.checkpoints = Checkpoints(folder)

    def train(self) -> RunResult:
        keep_freed_memory()
        torch.set_num_threads(self.given.training.threads or torch.get_num_threads())
        progress = self.checkpoints.progress() or Progress()
        surveyed = survey(self.given.data, self.given.training.seed)
        recipe = fill_in(self.given, surveyed.pairs)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.corpus, self.tokenizers = self._prepare(recipe, surveyed, progress)
        self.recipe = fill_in(recipe, surveyed.pairs, steps_per_epoch(self.corpus.train, recipe.training))
        self._keep_recipe(progress)
        self._build(progress)
        return self._loop(progress)

    def _prepare(self, recipe: Recipe, surveyed: Survey, progress: Progress) -> tuple[Corpus, TokenizerPair]:
        if progress.step:
            tokenizers = load_bundle(self.checkpoints.model(progress.step)).tokenizers
        else:
            tokenizers = train_tokenizers(
                recipe.data, lambda sources, targets: TokenizerPair.train(sources, targets, recipe.tokenizer)
            )
        assert recipe.model is not None
        values = recipe.model.model_dump()
        lengths = values["src_seq_len"], values["tgt_seq_len"]
        return prepare(recipe.data, tokenizers, lengths, surveyed, self.folder / "tokens"), tokenizers

    def _keep_recipe(self, progress: Progress) -> None:
        """Writes the filled-in recipe; a run that goes on must have the same one, but for how long it may take."""
        path = self.folder / RECIPE_FILE
        if progress.step:
            earlier, now = load_recipe(path).model_dump(), self.recipe.model_dump()
            for key in ("max_steps", "patience", "validate_every", "save_every", "log_every", "threads"):
                earlier["training"][key] = now["training"][key]
            differing = [
                f"{section}.{key}"
                for section, keys in now.items()
                for key, value in keys.items()
                if earlier.get(section, {}).get(key) != value and key not in ("src_vocab_size", "tgt_vocab_size")
            ]
            if differing:
                raise CheckpointError(
                    f"{self.folder} holds a run of another recipe (differing: {', '.join(differing)}); choose another"
                )
        path.write_text(self.recipe.to_toml(), encoding="utf-8")

    def _build(self, progress: Progress) -> None:
        assert self.recipe.model is not None
        sizes = {
            "src_vocab_size": self.tokenizers.source.vocab_size,
            "tgt_vocab_size": self.tokenizers.target.vocab_size,
        }
        self.config = type(self.recipe.model).model_validate({**self.recipe.model.model_dump(), **sizes})
        training = self.recipe.training
        reseed(training.seed)
        if progress.step:
            model = load_bundle(self.checkpoints.model(progress.step)).model
        else:
            model = family(str(self.config.model_dump()["family"])).build(self.config)
        if not isinstance(model, Transformer):
            raise ConfigError(f"{type(model).__name__} does not translate; choose model.family='transformer'")
        self.model = model
        optimizer = make_optimizer(model, training)
        if progress.step:
            self.checkpoints.load_optimizer(progress.step, optimizer)
        objective = TranslationObjective(model, training.label_smoothing)
        self.state = TrainingState(objective, optimizer, progress.step, training.seed)
        self.translator = Translator(
            model, self.tokenizers, max_source_tokens=self.corpus.report.longest_source, batch_tokens=8192
        )

    def _loop(self, progress: Progress) -> RunResult:
        training = self.recipe.training
        assert training.max_steps is not None
        if progress.finished == "max_steps" and progress.step < training.max_steps:
            progress.finished = None
        reporter = Reporter(self.folder / METRICS, training.max_steps, training.log_every, quiet=self.quiet)
        try:
            for line in self._opening(progress):
                reporter.say(line)
            with watch_signals() as interruption:
                hooks = Hooks(self.validate, self.save, reporter, interruption)
                progress = train_loop(self.state, self.corpus.train, training, self._schedule(), progress, hooks)
        finally:
            reporter.close()
        best = progress.best_step if progress.best_step is not None else progress.step
        return RunResult(self.folder, self.checkpoints.model(best), progress, interruption)

    def _schedule(self) -> Schedule:
        training = self.recipe.training
        assert training.max_steps is not None
        assert training.warmup_steps is not None
        return make_schedule(
            training.schedule,
            d_model=self.config.model_dump()["d_model"],
            peak=training.learning_rate,
            warmup_steps=training.warmup_steps,
            max_steps=training.max_steps,
        )

    def _opening(self, progress: Progress) -> list[str]:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        training = self.recipe.training
        epochs = (training.max_steps or 0) / steps_per_epoch(self.corpus.train, training)
        lines = self.corpus.report.lines()
        lines.append(
            f"model {self.config}: {parameters:,} parameters; {training.max_steps:,} steps ({epochs:.1f} epochs), "
            f"{torch.get_num_threads()} threads"
        )
        if progress.step:
            lines.append(f"continues at step {progress.step}")
        return lines

    def validate(self) -> dict[str, float]:
        """Loss, perplexity, BLEU and chrF on the validation pairs."""
        scores = validation_loss(self.state.objective, self.corpus.validation, self.recipe.training.batch_tokens)
        sources, references = zip(*self.corpus.validation_text, strict=True)
        translated = corpus_scores(self.translator.translate(sources), references)
        return scores | {score.name.lower(): score.value for score in translated}

    def save(self, progress: Progress) -> None:
        """Writes a checkpoint whose model folder is a bundle."""
        bundle = Bundle(self.config, self.model, self.tokenizers, self._provenance(progress))
        self.checkpoints.save(progress, lambda folder: save_bundle(folder, bundle), self.state.optimizer)

    def _provenance(self, progress: Progress) -> dict[str, Any]:
        packages = ("transformer", "torch", "tokenizers", "sacrebleu")
        return {
            "recipe": self.recipe.model_dump(exclude_none=True),
            "data": self.corpus.report.to_dict(),
            "step": progress.step,
            "validation": progress.scores,
            "max_source_tokens": self.corpus.report.longest_source,
            "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
