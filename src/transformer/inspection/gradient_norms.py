"""Norms of gradients from layer to layer: of a model, and of untrained ones with other norms or no residual paths."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.blocks import FeedForwardBlock, causal_mask, padding_mask
from transformer.bundle import Bundle
from transformer.inspection.packing import Facts
from transformer.inspection.passes import Pass
from transformer.inspection.steps import LAST_SECTIONS, make_steps
from transformer.models import family

MAX_PARAMETERS: Final = 100_000_000
"""Largest model of which untrained ones of the same size are built for comparison."""
SEED: Final = 1
ORDERS: Final = {"pre": "pre-norm", "post": "post-norm"}
VOCABULARY: Final = 1000
UNTRAINED: Final = {
    "d_model": 128, "h": 4, "d_ff": 512, "dropout": 0.0, "src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY,
    "share_embeddings": "all",
}  # fmt: skip
"""Sizes of the models of `norms_by_depth`."""
SENTENCES: Final = (8, 20)
"""Number and length of the random sentences that they read."""
REPEATS: Final = 3
"""Number of models whose norms are averaged."""


def layer_norms(recorded: Pass) -> list[Facts]:
    """Returns label and norm of the gradient of the output of each part of the model, first part first."""
    last: dict[str, float] = {}
    for step in make_steps(recorded):
        if step.output.gradient is not None and step.section not in ("Output", *LAST_SECTIONS.values()):
            last[step.section] = float(step.output.gradient.norm())
    return [{"label": section, "norm": norm} for section, norm in last.items()]


def step_norms(recorded: Pass) -> list[Facts]:
    """Returns the norm of the gradient with respect to the output of each step, from the loss back."""
    return [
        {"label": f"{step.section}: {step.title}", "section": step.section, "norm": float(step.output.gradient.norm())}
        for step in reversed(make_steps(recorded))
        if step.output.gradient is not None
    ]


def compared_norms(recorded: Pass, norms: Callable[[Pass], list[Facts]] = layer_norms) -> list[Facts]:
    """Returns the norms of a model and of untrained ones of its size, with and without residual connections.

    Args:
        recorded: Pass of the model.
        norms: Function that returns the norms of a pass.
    """
    return [{"name": "this model", "values": norms(recorded)}, *untrained_norms(recorded, norms)]


def untrained_norms(recorded: Pass, norms: Callable[[Pass], list[Facts]] = layer_norms) -> list[Facts]:
    """Returns the norms of untrained models of the size of one, with and without residual connections.

    Where the family has both orders of norms, there is an untrained model with each. Of models of more than
    `MAX_PARAMETERS` there is none.

    Args:
        recorded: Pass of the model, which the others compute with their own parameters.
        norms: Function that returns the norms of a pass.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", Sec. 3.3 and Fig. 3.
    """
    series: list[Facts] = []
    bundle = recorded.bundle
    if sum(parameter.numel() for parameter in bundle.model.parameters()) > MAX_PARAMETERS:
        return series
    example = replace(recorded.example, labels=recorded.labels)
    for order in ORDERS if "norm_order" in bundle.config.model_dump() else ("",):
        for residual in (True, False):
            one = Pass.record(_untrained(bundle, order), example, residual=residual)
            words = "untrained", ORDERS.get(order, ""), "" if residual else "without residual connections"
            series.append({"name": ", ".join(filter(None, words)), "values": norms(one)})
    return series


def norms_by_depth(depths: Sequence[int] = (6, 12)) -> list[Facts]:
    """Returns the gradient norms of the second feed-forward matrix of each decoder layer of untrained models.

    The models translate random sentences; there is one series for each order of norms and each number of layers.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", Sec. 3.3 and Fig. 3.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return [
            {"name": f"{name}, {depth} layers", "values": _mean_norms(order, depth)}
            for order, name in ORDERS.items()
            for depth in depths
        ]


def _mean_norms(order: str, depth: int) -> list[float]:
    chosen = family("transformer")
    config = chosen.config.model_validate({**UNTRAINED, "N": depth, "norm_order": order})
    total = torch.zeros(depth)
    for _ in range(REPEATS):
        model = chosen.build(config)
        source, target, labels = torch.randint(4, VOCABULARY, (3, *SENTENCES))
        logits = model(source, target, padding_mask(source), causal_mask(target.size(1)))
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        decoder = model.get_submodule("decoder")
        blocks = [module for module in decoder.modules() if isinstance(module, FeedForwardBlock)]
        total += torch.stack([cast(Tensor, block.linear_2.weight.grad).norm() for block in blocks])
    return (total / REPEATS).tolist()


def _untrained(bundle: Bundle, order: str) -> Bundle:
    """Returns a freshly initialized model of the same size, always with the same parameters."""
    config = bundle.config.model_copy(update={"norm_order": order}) if order else bundle.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = family(bundle.family).build(config)
    return replace(bundle, config=config, model=model)
