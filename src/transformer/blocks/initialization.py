"""Initialization of the parameters. The paper does not state which one it used."""

import math
from typing import Final

from torch import nn

INIT_STD: Final = 0.02
"""Standard deviation of the initial weights of BERT and GPT."""
RESIDUAL_OUTPUTS: Final = ("W_o.weight", "linear_2.weight")
"""Matrices whose output is added to a residual connection."""
QKV: Final = ("W_q.weight", "W_k.weight", "W_v.weight")
FEED_FORWARD: Final = ("linear_1.weight", "linear_2.weight")


def initialize_xavier_uniform(module: nn.Module) -> None:
    """Draws every parameter with more than one axis from U(-a, a), a = sqrt(6 / (fan_in + fan_out)).

    Vectors (biases, norms) keep the values set by their modules. A shared parameter is drawn once.

    Source: Glorot and Bengio 2010, Eq. 16.
    """
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


def initialize_fairseq(module: nn.Module) -> None:
    """Initializes like `initialize_xavier_uniform`, but with smaller residual branches, as fairseq does.

    W_q, W_k and W_v are drawn like one matrix of all three, from U(-a, a) with a = sqrt(6 / (d_model + 3 d_model)).
    The matrices of feed-forward networks are drawn from U(-a, a) with a = 1 / sqrt(fan_in), and the bias of W_o is 0.
    A post-norm stack, whose norms are on the residual path, then learns in a fraction of the steps, because the output
    of each sub-layer is small compared with the input that it is added to.

    Source: the fairseq toolkit (Ott et al. 2019) for the values; Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", Sec. 3.3, for the gradients of a post-norm stack at initialization.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("W_o.bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() < 2:
            continue
        elif name.endswith(FEED_FORWARD):
            nn.init.uniform_(parameter, -(parameter.size(1) ** -0.5), parameter.size(1) ** -0.5)
        else:
            nn.init.xavier_uniform_(parameter, gain=2**-0.5 if name.endswith(QKV) else 1.0)


def initialize_embeddings(module: nn.Module) -> None:
    """Draws the vectors of every embedding from N(0, 1 / d_model); scaled by sqrt(d_model) they have variance 1.

    Xavier's bound shrinks as the vocabulary grows, although the magnitude of a lookup should not depend on it. With
    10,000 tokens and d_model 128, the positional encoding, whose elements have a mean square of 1/2, would dominate the
    token embeddings. A post-norm model then takes many times the steps to learn what to attend to. A projection that
    shares the matrix starts with logits of variance 1 for a normalized input.

    Source: Vaswani et al. 2017, Sec. 3.4, for the factor; the authors' own tensor2tensor for the standard deviation.
    """
    for block in module.modules():
        if isinstance(block, nn.Embedding):
            nn.init.normal_(block.weight, std=block.embedding_dim**-0.5)


def initialize_normal(module: nn.Module, *, layers: int | None = None) -> None:
    """Draws every parameter with more than one axis from N(0, 0.02^2), without truncation, and sets biases to 0.

    The gains of norms keep their value, 1.

    Args:
        module: Module to initialize; a shared parameter is drawn once.
        layers: Number of layers of a pre-norm stack; None for other models. The standard deviation of the matrices
            that end a residual branch is divided by sqrt(2 layers), so that the sum of all branches does not grow
            with their number.

    Source: Devlin et al. 2019, "BERT", whose code truncates the normal distribution at two standard deviations;
    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", Sec. 2.3 (the division).
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            ends_branch = layers is not None and name.endswith(RESIDUAL_OUTPUTS)
            nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * (layers or 1)) if ends_branch else INIT_STD)
        elif name.endswith("bias") or name.endswith("beta"):
            nn.init.zeros_(parameter)


def initialize_t5(module: nn.Module, d_model: int, d_k: int) -> None:
    """Initializes a model whose attention scores are not scaled, as T5 does.

    W_q is drawn from N(0, 1 / (d_model d_k)), so that the scores have the variance that the factor 1 / sqrt(d_k) would
    give. Other linear layers are drawn from N(0, 1 / fan_in) and relative position biases from N(0, 1 / d_model).
    Embeddings are drawn from N(0, 1), and an output projection that is not shared with them from N(0, 1 / d_model).

    Source: Raffel et al. 2020, and the authors' mesh_tensorflow for the values.
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            continue
        variance = 1 / parameter.size(1)
        if name.endswith("W_q.weight"):
            variance /= d_k
        elif "position_bias" in name:
            variance = 1 / d_model
        elif "embed" in name:
            variance = 1.0
        nn.init.normal_(parameter, std=math.sqrt(variance))
