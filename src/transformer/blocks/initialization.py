"""First values of the parameters. The paper does not state its own."""

from torch import nn


def initialize_xavier_uniform(module: nn.Module) -> None:
    """Draws every parameter with more than one axis from U(-a, a), a = sqrt(6 / (fan_in + fan_out)).

    Vectors (biases, norms) keep what their blocks gave them. A shared parameter is drawn once.

    Source: Glorot and Bengio 2010, Eq. 16.
    """
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


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
