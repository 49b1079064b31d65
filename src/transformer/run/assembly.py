"""From a recipe to the parts of a run: data, model, optimizer, new or as the run left them."""

from collections.abc import Collection
from pathlib import Path

import torch

from transformer.bundle import Bundle
from transformer.data.prepare import Corpus, Preparation
from transformer.data.progress import shown_progress
from transformer.errors import ConfigError
from transformer.fine_tuning import read_start, take_over
from transformer.models import family
from transformer.recipe import Recipe, fill_in
from transformer.resuming import (
    Earlier,
    find_earlier,
    may_lack,
    refuse_changed_recipe,
    refuse_changed_texts,
    refuse_unknown_keys,
    restore_memory,
    restore_weights,
)
from transformer.run.parts import Parts
from transformer.settings import Settings
from transformer.storage.durable import replace_text
from transformer.text.pair import TokenizerPair
from transformer.training.checkpoint import Checkpoints
from transformer.training.distributed import World
from transformer.training.hardware import choose_hardware
from transformer.training.loop import steps_per_epoch
from transformer.training.memory import refuse_too_large_model
from transformer.training.objectives import TranslationObjective
from transformer.training.optimizer import make_optimizer
from transformer.training.plan import choose_batch_tokens
from transformer.training.progress import Progress
from transformer.training.randomness import reseed
from transformer.training.replicas import replicate
from transformer.training.schedule import Schedule, make_schedule
from transformer.training.settings import TrainingSettings
from transformer.training.step import TrainingState
from transformer.transformer import Transformer

RECIPE_FILE = "recipe.toml"


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


def assemble(
    given: Recipe,
    folder: Path,
    preparation: Preparation,
    allow_changed: Collection[str],
    notes: list[str],
    world: World,
) -> Parts:
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
    model = _model(config, recipe.training, world)
    if start:
        model.load_state_dict(start.bundle.model.state_dict())
    if earlier:
        restore_weights(earlier, model)
    replicas = replicate(_objective(model, recipe.training), model, world)
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
    return Parts(
        folder, recipe, corpus, tokenizers, config, replicas, state, schedule, checkpoints, progress, inputs, notes,
        origin,
    )  # fmt: skip


def _with_batch_tokens(recipe: Recipe, config: Settings, corpus: Corpus, world: World) -> Recipe:
    """Settles `batch_tokens="auto"` by trying batches on a model of the run's sizes; rank 0 decides."""
    training = recipe.training
    hardware = choose_hardware(training.device, training.precision)
    objective = _objective(_model(config, training, world), training)
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


def _model(config: Settings, training: TrainingSettings, world: World) -> Transformer:
    """A new model on its device, if there is room for it."""
    build = family(str(config.model_dump()["family"])).build
    device = choose_hardware(training.device, training.precision).device
    with torch.device("meta"):
        shapes = build(config)
    refuse_too_large_model(shapes, device, world.size if training.distribution == "fsdp" else 1)
    reseed(training.seed)
    model = build(config).to(device)
    if not isinstance(model, Transformer):
        raise ConfigError(f"{type(model).__name__} does not translate; choose model.family='transformer'")
    return model


def _objective(model: Transformer, training: TrainingSettings) -> TranslationObjective:
    checkpointing = training.activation_checkpointing
    return TranslationObjective(model, training.label_smoothing, activation_checkpointing=checkpointing)


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
