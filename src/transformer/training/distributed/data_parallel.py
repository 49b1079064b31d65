"""A model over several ranks: whole on each of them, or in parts; and whole again for validation and checkpoints."""

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
class Replicas:
    """What the ranks hold of a model.

    Attributes:
        objective: what a step calls; after its backward pass the gradient is the mean over all ranks.
        model: whose parameters are trained; with FSDP2 they are parts.
        whole: the same, whole; with FSDP2 a copy on rank 0 that `gather` fills.
    """

    objective: nn.Module
    model: nn.Module
    whole: nn.Module

    @torch.no_grad()
    def gather(self) -> None:
        """Brings what was trained into `whole` on rank 0; all ranks must call it."""
        for name, parameter in self.model.named_parameters():
            if isinstance(parameter, DTensor):
                tensor = parameter.full_tensor()
                if self.whole is not self.model:
                    self.whole.get_parameter(name).copy_(tensor)


def replicate(objective: nn.Module, model: nn.Module, world: DistributedContext) -> Replicas:
    """Spreads an objective over the ranks, before its optimizer is made.

    DDP keeps the model as it is. FSDP2 keeps a part of every matrix on each rank: layers are whole while they compute,
    and what is outside them (embeddings, projection, last norms: shared matrices among them) from the start of the
    forward pass to the end of the backward pass.

    Args:
        objective: on its device, with the same parameters on every rank.
        model: inside it.
        world: the ranks.
    """
    if world.size == 1:
        return Replicas(objective, model, model)
    if world.strategy == "ddp":
        device_ids = [world.device] if world.device.type == "cuda" else None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)  # since torch 2.13
            wrapped = DistributedDataParallel(
                objective, device_ids=device_ids, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        return Replicas(wrapped, model, model)
    whole = copy.deepcopy(model) if world.is_main else model
    _shard(objective, world)
    return Replicas(objective, model, whole)


def _shard(objective: nn.Module, world: DistributedContext) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    layers = [module for module in objective.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for module in (*layers, objective):
        sharded = fully_shard(module, mesh=mesh)
        assert isinstance(sharded, FSDPModule)
        sharded.set_force_sum_reduction_for_comms(world.device.type == "cpu")  # gloo knows no mean


def unwrapped(objective: nn.Module) -> nn.Module:
    """An objective without what DDP has around it."""
    return objective.module if isinstance(objective, DistributedDataParallel) else objective


def hold_gradient(objective: nn.Module) -> AbstractContextManager[object]:
    """A block whose backward pass keeps its gradient on the rank, for a later one to send the sum.

    FSDP2 sends every gradient at once, so that no rank ever holds a whole one.
    """
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()


def whole_tensor(tensor: Tensor) -> Tensor:
    """A tensor of which each rank holds a part, whole; all ranks must call it. Others are returned as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gathered(tensors: Mapping[str, Tensor], world: DistributedContext) -> dict[str, Tensor]:
    """The tensors, whole, on rank 0, in main memory where they were parts; nothing on the others."""
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = whole_tensor(tensor)
        if world.is_main:
            kept[name] = whole.cpu() if isinstance(tensor, DTensor) else whole
    return kept


def part_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """The part of a whole tensor that belongs to a rank's part of its parameter."""
    if not isinstance(parameter, DTensor) or not tensor.shape:
        return tensor
    mesh = parameter.device_mesh
    return distribute_tensor(tensor.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)
