"""First values of the parameters. The paper does not state its own."""

import math
from typing import Final

from torch import nn

DEVIATION: Final = 0.02
"""Of the weights of BERT and GPT."""
BRANCH_ENDS: Final = ("W_o.weight", "linear_2.weight")
PACKED: Final = ("W_q.weight", "W_k.weight", "W_v.weight")
FEED_FORWARD: Final = ("linear_1.weight", "linear_2.weight")


def initialize_xavier_uniform(module: nn.Module) -> None:
    """Draws every parameter with more than one axis from U(-a, a), a = sqrt(6 / (fan_in + fan_out)).

    Vectors (biases, norms) keep what their blocks gave them. A shared parameter is drawn once.

    Source: Glorot and Bengio 2010, Eq. 16.
    """
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


def initialize_as_fairseq(module: nn.Module) -> None:
    """As `initialize_xavier_uniform`, but that every residual branch begins smaller.

    W_q, W_k and W_v are drawn as one matrix of all three, U(-a, a), a = sqrt(6 / (d_model + 3 d_model)), the matrices
    of feed-forward networks from U(-a, a), a = 1 / sqrt(fan_in), and the bias of W_o is 0. A post-norm stack, whose
    norms stand on the residual path, learns in a fraction of the steps: each sub-layer takes less from what it adds to.

    Source: the fairseq toolkit (Ott et al. 2019), whose values these are; Xiong et al. 2020, "On Layer Normalization
    in the Transformer Architecture", Sec. 3.3, for the gradients of a post-norm stack at the start.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("W_o.bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() < 2:
            continue
        elif name.endswith(FEED_FORWARD):
            nn.init.uniform_(parameter, -(parameter.size(1) ** -0.5), parameter.size(1) ** -0.5)
        else:
            nn.init.xavier_uniform_(parameter, gain=2**-0.5 if name.endswith(PACKED) else 1.0)


def initialize_embeddings(module: nn.Module) -> None:
    """Draws the vectors of every embedding from N(0, 1 / d_model), so that sqrt(d_model) times one has variance 1.

    Xavier's bound falls with the size of the vocabulary, which says nothing of a lookup: with 10,000 tokens and d_model
    128 the positional encoding, whose elements have a mean square of 1/2, would drown the tokens, and a post-norm model
    then takes many times the steps to learn what to attend to. A projection that shares the matrix starts with logits
    of variance 1 for a normed input.

    Source: Vaswani et al. 2017, Sec. 3.4, for the factor; the deviation is that of the authors' own tensor2tensor.
    """
    for block in module.modules():
        if isinstance(block, nn.Embedding):
            nn.init.normal_(block.weight, std=block.embedding_dim**-0.5)


def initialize_normal(module: nn.Module, *, layers: int | None = None) -> None:
    """Draws every parameter with more than one axis from N(0, 0.02^2), uncut; biases become 0, gains of norms stay 1.

    Args:
        module: whose parameters are drawn; a shared one once.
        layers: of a pre-norm stack, whose matrices that end a residual branch are divided by sqrt(2 layers), so that
            the sum of all branches does not grow with their number; None leaves them.

    Source: Devlin et al. 2019, "BERT", whose code cuts the normal at two deviations; Radford et al. 2019, "Language
    Models are Unsupervised Multitask Learners", Sec. 2.3 (the division).
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            ends_branch = layers is not None and name.endswith(BRANCH_ENDS)
            nn.init.normal_(parameter, std=DEVIATION / math.sqrt(2 * (layers or 1)) if ends_branch else DEVIATION)
        elif name.endswith("bias") or name.endswith("beta"):
            nn.init.zeros_(parameter)


def initialize_t5(module: nn.Module, d_model: int, d_k: int) -> None:
    """Draws the matrices of attention whose products are not scaled, and of what stands around it.

    Queries come from N(0, 1 / (d_model d_k)), so that products of queries and keys have the variance that the scale
    1 / sqrt(d_k) would give; other maps from N(0, 1 / fan_in), biases of positions from N(0, 1 / d_model).
    Embeddings come from N(0, 1), and an output of its own from N(0, 1 / d_model).

    Source: Raffel et al. 2020, and the authors' mesh_tensorflow, whose values these are.
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
