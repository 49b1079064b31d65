"""Names, symbols and formulas of the operations, by the block that computes them and in the paper's notation."""

from typing import Final

NAMES: Final[dict[tuple[str, str, str], tuple[str, str]]] = {
    ("InputEmbedding", "embedding", ""): ("Look up embeddings", "E"),
    ("InputEmbedding", "multiply", ""): ("Multiply by √d_model", r"E'"),
    ("PositionalEncoding", "add", ""): ("Add positional encoding", "x"),
    ("LearnedPositions", "rearrange", ""): ("Look up positions", "P"),
    ("LearnedPositions", "add", ""): ("Add learned positions", "x"),
    ("MultiHeadAttention", "linear", "W_q"): ("Queries", "Q"),
    ("MultiHeadAttention", "linear", "W_k"): ("Keys", "K"),
    ("MultiHeadAttention", "linear", "W_v"): ("Values", "V"),
    ("MultiHeadAttention", "linear", "W_o"): ("Output projection", "O"),
    ("MultiHeadAttention", "rearrange", "Q"): ("Split queries into heads", "Q_i"),
    ("MultiHeadAttention", "rearrange", "K"): ("Split keys into heads", "K_i"),
    ("MultiHeadAttention", "rearrange", "V"): ("Split values into heads", "V_i"),
    ("MultiHeadAttention", "rearrange", "K_i"): ("Transpose keys", r"K_i^\top"),
    ("MultiHeadAttention", "rearrange", r"\text{head}_i"): ("Concatenate heads", r"\text{Concat}"),
    ("MultiHeadAttention", "matmul", "0"): ("Scores", "S_i"),
    ("MultiHeadAttention", "matmul", "1"): ("Weighted sum of values", r"\text{head}_i"),
    ("MultiHeadAttention", "divide", ""): ("Divide by √d_k", r"S'_i"),
    ("MultiHeadAttention", "multiply", ""): ("Scale the scores", r"S'_i"),
    ("MultiHeadAttention", "add", ""): ("Add position bias", r"S'_i"),
    ("MultiHeadAttention", "masked_fill", "0"): ("Mask", r"S''_i"),
    ("MultiHeadAttention", "masked_fill", "1"): ("Clear rows that may attend to nothing", "A'_i"),
    ("MultiHeadAttention", "softmax", ""): ("Softmax", "A_i"),
    ("ResidualConnection", "add", "x"): ("Add the residual", "x'"),
    ("ResidualConnection", "add", ""): ("Add the residual", "x"),
    ("LayerNormalization", "layer_norm", ""): ("Layer normalization", r"\bar x"),
    ("RMSNormalization", "rms_norm", ""): ("Root mean square normalization", r"\bar x"),
    ("FeedForwardBlock", "linear", "linear_1"): ("First linear layer", "u"),
    ("FeedForwardBlock", "linear", "linear_2"): ("Second linear layer", r"\text{FFN}"),
    ("FeedForwardBlock", "relu", ""): ("ReLU", "r"),
    ("FeedForwardBlock", "gelu", ""): ("GELU", "r"),
    ("GatedFeedForward", "linear", "gate"): ("Gate", "g"),
    ("GatedFeedForward", "linear", "linear_1"): ("First linear layer", "u"),
    ("GatedFeedForward", "linear", "linear_2"): ("Second linear layer", r"\text{FFN}"),
    ("GatedFeedForward", "silu", ""): ("SiLU of the gate", r"g'"),
    ("GatedFeedForward", "gelu", ""): ("GELU of the gate", r"g'"),
    ("GatedFeedForward", "multiply", ""): ("Multiply by the gate", "r"),
    ("RelativePositionBias", "embedding", ""): ("Look up biases of distances", "B"),
    ("RelativePositionBias", "rearrange", ""): ("Arrange biases by heads", "B"),
    ("ProjectionLayer", "linear", ""): ("Project to the vocabulary", "z"),
    ("", "rearrange", "z"): ("Take the only sentence of the batch", "z'"),
    ("", "cross_entropy", ""): ("Loss", "L"),
}
"""Title and symbol of an operation.

The key is the class of the block, the kind, and what tells it from others of its kind there: the layer whose matrix it
uses, the symbol of its input, or its number; an empty text for any.
"""

KIND_NAMES: Final = {
    "linear": ("Linear layer", "y"), "matmul": ("Matrix product", "y"), "embedding": ("Look up embeddings", "E"),
    "layer_norm": ("Layer normalization", r"\bar x"), "rms_norm": ("Root mean square normalization", r"\bar x"),
    "softmax": ("Softmax", "p"), "masked_fill": ("Mask", "y"), "add": ("Add", "y"), "subtract": ("Subtract", "y"),
    "multiply": ("Multiply", "y"), "divide": ("Divide", "y"), "sum": ("Sum", "y"), "mean": ("Mean", "y"),
    "relu": ("ReLU", "y"), "gelu": ("GELU", "y"), "silu": ("SiLU", "y"), "tanh": ("Hyperbolic tangent", "y"),
    "rearrange": ("Rearrange", "y"), "cross_entropy": ("Loss", "L"),
}  # fmt: skip
"""Title and symbol of operations that `NAMES` does not list."""

PARAMETER_SYMBOLS: Final = {
    "W_q": ("W^Q", "b^Q"), "W_k": ("W^K", "b^K"), "W_v": ("W^V", "b^V"), "W_o": ("W^O", "b^O"),
    "linear_1": ("W_1", "b_1"), "linear_2": ("W_2", "b_2"), "gate": ("W_g", "b_g"), "embedding": ("W^E", ""),
    "proj": ("W^P", "b^P"),
}  # fmt: skip
"""Symbols of weight and bias by the name of their layer."""

FORMULAS: Final = {
    "embedding": "{y}_t = {w}_{{\\text{{token}}(t)}}",
    "linear": "{y} = {x} {wT}{b}",
    "matmul": "{y} = {x} {w}",
    "add": "{y} = {x} + {w}",
    "subtract": "{y} = {x} - {w}",
    "multiply": "{y} = {x} \\cdot {w}",
    "divide": "{y} = {x} / {w}",
    "layer_norm": "{y} = \\alpha \\odot \\frac{{{x} - \\mu}}{{\\sqrt{{\\sigma^2 + \\epsilon}}}} + \\beta",
    "rms_norm": "{y} = \\alpha \\odot \\frac{{{x}}}{{\\sqrt{{\\text{{mean}}({x}^2) + \\epsilon}}}}",
    "softmax": "{y}_j = \\frac{{e^{{s_j}}}}{{\\sum_k e^{{s_k}}}}, s = {x}",
    "masked_fill": "{y} = {n} \\text{{ where masked, else }} {x}",
    "relu": "{y} = \\max(0, {x})",
    "gelu": "{y} = {x} \\Phi({x})",
    "silu": "{y} = \\frac{{{x}}}{{1 + e^{{-{x}}}}}",
    "tanh": "{y} = \\tanh({x})",
    "sum": "{y} = \\sum {x}",
    "mean": "{y} = \\text{{mean}}({x})",
    "rearrange": "{y} = \\text{{the same numbers as }} {x}",
    "cross_entropy": "{y} = -\\frac{{1}}{{n}} \\sum_t \\sum_v q_{{tv}} \\log p_{{tv}}, p = \\text{{softmax}}({x})",
}
"""Formula of each kind of operation in LaTeX: y is the output, x and w what it reads, n a number; T: transposed."""

GRADIENTS: Final[dict[str, dict[str, str]]] = {
    "embedding": {"w": "{dw}_v = \\sum_{{t: \\text{{token}}(t) = v}} \\left( {dy} \\right)_t"},
    "linear": {"x": "{dx} = {dy} {w}", "w": "{dw} = {dyT} {x}", "b": "{db} = \\sum_t \\left( {dy} \\right)_t"},
    "matmul": {"x": "{dx} = {dy} {wT}", "w": "{dw} = {xT} {dy}"},
    "add": {"x": "{dx} = {dy}", "w": "{dw} = {dy}"},
    "subtract": {"x": "{dx} = {dy}", "w": "{dw} = -{dy}"},
    "multiply": {"x": "{dx} = {dy} \\cdot {w}", "w": "{dw} = {dy} \\cdot {x}"},
    "divide": {"x": "{dx} = {dy} / {w}"},
    "layer_norm": {
        "x": "{dx} = \\frac{{1}}{{\\sigma}} \\left( g - \\text{{mean}}(g) - \\hat x \\cdot \\text{{mean}}"
        "(g \\odot \\hat x) \\right), g = \\alpha \\odot {dy}, \\hat x = \\frac{{{x} - \\mu}}{{\\sigma}}",
        "w": "{dw} = \\sum_t \\left( {dy} \\right)_t \\odot \\hat x_t",
        "b": "{db} = \\sum_t \\left( {dy} \\right)_t",
    },
    "rms_norm": {
        "x": "{dx} = \\frac{{1}}{{\\sigma}} \\left( g - \\hat x \\cdot \\text{{mean}}(g \\odot \\hat x) \\right), "
        "g = \\alpha \\odot {dy}, \\hat x = {x} / \\sigma",
        "w": "{dw} = \\sum_t \\left( {dy} \\right)_t \\odot \\hat x_t",
    },
    "softmax": {"x": "{dx} = {y} \\odot \\left( {dy} - \\sum_k \\left( {dy} \\right)_k {y}_k \\right)"},
    "masked_fill": {"x": "{dx} = 0 \\text{{ where masked, else }} {dy}"},
    "relu": {"x": "{dx} = {dy} \\odot [{x} > 0]"},
    "gelu": {"x": "{dx} = {dy} \\odot \\left( \\Phi({x}) + {x} \\varphi({x}) \\right)"},
    "silu": {"x": "{dx} = {dy} \\odot s (1 + {x} (1 - s)), s = \\frac{{1}}{{1 + e^{{-{x}}}}}"},
    "tanh": {"x": "{dx} = {dy} \\odot (1 - {y}^2)"},
    "sum": {"x": "{dx} = {dy}"},
    "mean": {"x": "{dx} = {dy} / n"},
    "rearrange": {"x": "{dx} = \\text{{the same numbers as }} {dy}"},
    "cross_entropy": {"x": "{dx} = (p - q) / n"},
}
"""Gradients of each kind of operation by what it reads, one line of the chain rule each."""

NOTES: Final = {
    ("MultiHeadAttention", "divide"): "The dot product of two random vectors of d_k numbers with variance 1 has "
    "variance d_k. Without the division, large d_k push the softmax where its gradient is almost zero.",
    ("MultiHeadAttention", "masked_fill"): "A masked score of minus infinity becomes a weight of zero. The softmax's "
    "gradient is proportional to the weight, so nothing flows back through a masked position.",
    ("MultiHeadAttention", "linear"): "The matrix is stored as (outputs, inputs), hence the transpose. Head i is the "
    "features i d_k to (i + 1) d_k - 1 of the output.",
    ("ResidualConnection", "add"): "The gradient of a sum goes to both of its terms unchanged: one path around the "
    "sub-layer, one through it.",
    ("InputEmbedding", "multiply"): "The paper gives no reason. Embeddings start with variance 1 / d_model, so the "
    "factor gives them the magnitude of the positional encoding.",
    ("", "cross_entropy"): "q is the target smoothed by ε: 1 - ε on the right token, and ε / V on every token. "
    "The gradient of softmax and logarithm together is p - q.",
}  # fmt: skip
"""What is worth knowing about a step, by the class of the block and the kind."""
