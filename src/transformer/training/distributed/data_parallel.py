"""Data parallelism with DDP or FSDP2, and gathering of the full model for validation and checkpoints."""

import copy
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transformer.blocks import DecoderLayer, EncoderLayer
from transformer.training.distributed.process_group import DistributedContext


@dataclass(frozen=True)
class DistributedModel:
    """A model distributed over the ranks.

    Attributes:
        objective: Module that a training step calls; its backward pass averages gradients over all ranks.
        model: Model whose parameters are trained; with FSDP2 they are sharded.
        whole: The full model; with FSDP2 a copy on rank 0 that `gather` fills.
    """

    objective: nn.Module
    model: nn.Module
    whole: nn.Module

    @torch.no_grad()
    def gather(self) -> None:
        """Gathers the trained parameters into `whole` on rank 0; all ranks must call it."""
        for name, parameter in self.model.named_parameters():
            if isinstance(parameter, DTensor):
                tensor = parameter.full_tensor()
                if self.whole is not self.model:
                    self.whole.get_parameter(name).copy_(tensor)


def distribute_model(objective: nn.Module, model: nn.Module, context: DistributedContext) -> DistributedModel:
    """Distributes an objective over the ranks; must be called before the optimizer is created.

    DDP keeps the full model on each rank. FSDP2 keeps a shard of every matrix on each rank and gathers a layer while it
    is computed. Modules outside the layers (embeddings, projection, last norms, which may share matrices) are gathered
    from the start of the forward pass to the end of the backward pass.

    Args:
        objective: Objective on its device, with the same parameters on every rank.
        model: Model inside the objective.
        context: The ranks of the run.
    """
    if context.size == 1 and context.strategy == "ddp":
        return DistributedModel(objective, model, model)
    if context.strategy == "ddp":
        device_ids = [context.device] if context.device.type == "cuda" else None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)  # since torch 2.13
            wrapped = DistributedDataParallel(
                objective, device_ids=device_ids, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        return DistributedModel(wrapped, model, model)
    whole = copy.deepcopy(model) if context.is_main else model
    _shard(objective, context)
    return DistributedModel(objective, model, whole)


def _shard(objective: nn.Module, context: DistributedContext) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(context.device.type, (context.size,))
    layers = [module for module in objective.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for module in (*layers, objective):
        sharded = fully_shard(module, mesh=mesh)
        sharded.set_force_sum_reduction_for_comms(context.device.type == "cpu")  # gloo cannot average


def unwrap(objective: nn.Module) -> nn.Module:
    """Returns the objective inside a DDP wrapper."""
    return objective.module if isinstance(objective, DistributedDataParallel) else objective


def no_gradient_sync(objective: nn.Module) -> AbstractContextManager[object]:
    """Returns a context whose backward pass accumulates gradients locally, to be reduced by a later one.

    FSDP2 reduces gradients in every backward pass, so that no rank ever holds a full gradient.
    """
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gathers a sharded tensor; all ranks must call it. Other tensors are returned unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is divided among the ranks."""
    return isinstance(tensor, DTensor)


def local_tensor(tensor: Tensor) -> Tensor:
    """Returns this rank's shard of a tensor; tensors that are not sharded are returned unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_on_main(tensors: Mapping[str, Tensor], context: DistributedContext) -> dict[str, Tensor]:
    """Gathers tensors on rank 0, sharded ones in CPU memory; returns an empty dictionary on other ranks."""
    full: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        gathered = full_tensor(tensor)
        if context.is_main:
            full[name] = gathered.cpu() if isinstance(tensor, DTensor) else gathered
    return full


def shard_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Shards a full tensor in the same way as a parameter."""
    if not isinstance(parameter, DTensor) or not tensor.shape:
        return tensor
    mesh = parameter.device_mesh
    return distribute_tensor(tensor.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)
