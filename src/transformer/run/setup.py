"""Setup of what is trained: the model on its device, and its objective."""

import torch
from torch import nn

from transformer.models import family
from transformer.models.kinds import ModelConfig
from transformer.models.size import model_size
from transformer.run.task import TaskData
from transformer.training.backend import Backend
from transformer.training.compilation import compile_layers
from transformer.training.config import TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.freezing import freeze_parameters
from transformer.training.planning.memory import check_model_fits
from transformer.training.rng import reseed


def new_model(config: ModelConfig, seed: int, backend: Backend, context: DistributedContext) -> nn.Module:
    """Builds a new model on its device.

    Raises:
        ConfigError: It does not fit into memory.
    """
    check_fits(config, backend.device, context)
    reseed(seed)
    return family(config.family_name).build(config).to(backend.device)


def check_fits(config: ModelConfig, device: torch.device, context: DistributedContext) -> None:
    """Checks that a model with its training state fits into the memory of a device.

    Raises:
        ConfigError: It does not.
    """
    size, shards = model_size(config), context.size if context.strategy == "fsdp" else 1
    check_model_fits(size.parameters, size.buffer_bytes, device, shards)


def new_objective(data: TaskData, model: nn.Module, settings: TrainingSettings) -> nn.Module:
    """Returns the objective of a model, with frozen parameters and compiled layers if the settings ask for them.

    Raises:
        ConfigError: `training.freeze` matches no parameter, or all.
    """
    freeze_parameters(model, settings.freeze)
    objective = data.objective(model, settings)
    if settings.compile:
        compile_layers(objective)
    return objective
