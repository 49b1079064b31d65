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
class DistributedModel:
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


def distribute_model(objective: nn.Module, model: nn.Module, context: DistributedContext) -> DistributedModel:
    """Spreads an objective over the ranks, before its optimizer is made.

    DDP keeps the model as it is. FSDP2 keeps a part of every matrix on each rank: layers are whole while they compute,
    and what is outside them (embeddings, projection, last norms: shared matrices among them) from the start of the
    forward pass to the end of the backward pass.

    Args:
        objective: on its device, with the same parameters on every rank.
        model: inside it.
        context: The ranks of the run.
    """
    if context.size == 1:
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
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(context.device.type, (context.size,))
    layers = [module for module in objective.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for module in (*layers, objective):
        sharded = fully_shard(module, mesh=mesh)
        assert isinstance(sharded, FSDPModule)
        sharded.set_force_sum_reduction_for_comms(context.device.type == "cpu")  # gloo knows no mean


def unwrap(objective: nn.Module) -> nn.Module:
    """An objective without what DDP has around it."""
    return objective.module if isinstance(objective, DistributedDataParallel) else objective


def no_gradient_sync(objective: nn.Module) -> AbstractContextManager[object]:
    """A block whose backward pass keeps its gradient on the rank, for a later one to send the sum.

    FSDP2 sends every gradient at once, so that no rank ever holds a whole one.
    """
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor of which each rank holds a part, whole; all ranks must call it. Others are returned as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_on_main(tensors: Mapping[str, Tensor], context: DistributedContext) -> dict[str, Tensor]:
    """The tensors, whole, on rank 0, in main memory where they were parts; nothing on the others."""
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = full_tensor(tensor)
        if context.is_main:
            kept[name] = whole.cpu() if isinstance(tensor, DTensor) else whole
    return kept


def shard_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """The part of a whole tensor that belongs to a rank's part of its parameter."""
    if not isinstance(parameter, DTensor) or not tensor.shape:
        return tensor
    mesh = parameter.device_mesh
    return distribute_tensor(tensor.to(mesh.device_type), mesh, parameter.placements, src_data_rank=None)
