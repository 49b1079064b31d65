"""Names, symbols and formulas of the operations, by the block that computes them and in the paper's notation."""

from typing import Final

NAMES: Final[dict[tuple[str, str, str], tuple[str, str]]] = {
    ("InputEmbedding", "embedding", ""): ("Look up embeddings", "E"),
    ("InputEmbedding", "multiply", ""): ("Multiply by √d_model", r"E'"),
    ("InputEmbedding", "multiply", "unscaled"): ("Keep the embeddings unscaled", r"E'"),
    ("PositionalEncoding", "add", ""): ("Add positional encoding", "x"),
    ("BertEmbedding", "rearrange", "types"): ("Look up the segment embedding", "S"),
    ("BertEmbedding", "add", ""): ("Add the segment embedding", "E''"),
    ("PatchEmbedding", "rearrange", r"\text{pixels}"): ("Split the image into patches", r"P"),
    ("PatchEmbedding", "rearrange", "projection"): ("Arrange the filters as a matrix", r"W^E"),
    ("PatchEmbedding", "linear", ""): ("Embed the patches", "E"),
    ("", "rearrange", "first"): ("Look up the class token", r"x_{\text{class}}"),
    ("", "rearrange", r"x_{\text{class}}"): ("Prepend the class token", "E'"),
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
    ("MultiHeadAttention", "rearrange", r"\tilde K_i"): ("Transpose keys", r"\tilde K_i^\top"),
    ("MultiHeadAttention", "rearrange", r"K'_i"): ("Transpose keys", r"K_i^{\prime\top}"),
    ("MultiHeadAttention", "rearrange", "K_i repeated"): ("Repeat keys for their queries", r"K'_i"),
    ("MultiHeadAttention", "rearrange", r"\tilde K_i repeated"): ("Repeat keys for their queries", r"K'_i"),
    ("MultiHeadAttention", "rearrange", "V_i repeated"): ("Repeat values for their queries", r"V'_i"),
    ("MultiHeadAttention", "rearrange", r"\text{head}_i"): ("Concatenate heads", r"\text{Concat}"),
    ("MultiHeadAttention", "matmul", "0"): ("Scores", "S_i"),
    ("MultiHeadAttention", "matmul", "1"): ("Weighted sum of values", r"\text{head}_i"),
    ("MultiHeadAttention", "divide", ""): ("Divide by √d_k", r"S'_i"),
    ("MultiHeadAttention", "multiply", ""): ("Scale the scores", r"S'_i"),
    ("MultiHeadAttention", "multiply", "unscaled"): ("Keep the scores unscaled", r"S'_i"),
    ("MultiHeadAttention", "multiply", "A_i"): ("Mute heads", r"\hat A_i"),
    ("MultiHeadAttention", "multiply", "A'_i"): ("Mute heads", r"\hat A_i"),
    ("MultiHeadAttention", "add", ""): ("Add position bias", r"\tilde S_i"),
    ("MultiHeadAttention", "masked_fill", "0"): ("Mask", r"S''_i"),
    ("MultiHeadAttention", "masked_fill", "1"): ("Set masked weights to 0", "A'_i"),
    ("MultiHeadAttention", "softmax", ""): ("Softmax", "A_i"),
    ("RotaryPositions", "rearrange", "0"): ("First half of the queries", "Q_{i,1}"),
    ("RotaryPositions", "rearrange", "1"): ("Second half of the queries", "Q_{i,2}"),
    ("RotaryPositions", "multiply", "0"): ("First half times cosine", r"Q_{i,1} \cos"),
    ("RotaryPositions", "multiply", "1"): ("Second half times sine", r"Q_{i,2} \sin"),
    ("RotaryPositions", "subtract", "0"): ("Rotated first half", r"\tilde Q_{i,1}"),
    ("RotaryPositions", "multiply", "2"): ("Second half times cosine", r"Q_{i,2} \cos"),
    ("RotaryPositions", "multiply", "3"): ("First half times sine", r"Q_{i,1} \sin"),
    ("RotaryPositions", "add", "0"): ("Rotated second half", r"\tilde Q_{i,2}"),
    ("RotaryPositions", "rearrange", "2"): ("Join the halves of the queries", r"\tilde Q_i"),
    ("RotaryPositions", "rearrange", "3"): ("First half of the keys", "K_{i,1}"),
    ("RotaryPositions", "rearrange", "4"): ("Second half of the keys", "K_{i,2}"),
    ("RotaryPositions", "multiply", "4"): ("First half times cosine", r"K_{i,1} \cos"),
    ("RotaryPositions", "multiply", "5"): ("Second half times sine", r"K_{i,2} \sin"),
    ("RotaryPositions", "subtract", "1"): ("Rotated first half", r"\tilde K_{i,1}"),
    ("RotaryPositions", "multiply", "6"): ("Second half times cosine", r"K_{i,2} \cos"),
    ("RotaryPositions", "multiply", "7"): ("First half times sine", r"K_{i,1} \sin"),
    ("RotaryPositions", "add", "1"): ("Rotated second half", r"\tilde K_{i,2}"),
    ("RotaryPositions", "rearrange", "5"): ("Join the halves of the keys", r"\tilde K_i"),
    ("ResidualConnection", "add", "x"): ("Add the residual", "x'"),
    ("ResidualConnection", "add", ""): ("Add the residual", "x"),
    ("ReadoutLayer", "rearrange", ""): ("Keep the positions to predict from", r"\hat x"),
    ("LayerNormalization", "layer_norm", ""): ("Layer normalization", r"\bar x"),
    ("RMSNormalization", "rms_norm", ""): ("Root mean square normalization", r"\bar x"),
    ("FeedForwardBlock", "linear", "linear_1"): ("First linear layer", "u"),
    ("FeedForwardBlock", "linear", "linear_2"): ("Second linear layer", r"\text{FFN}"),
    ("FeedForwardBlock", "relu", ""): ("ReLU", "r"),
    ("FeedForwardBlock", "gelu", ""): ("GELU", "r"),
    ("FeedForwardBlock", "silu", ""): ("SiLU", "r"),
    ("FeedForwardBlock", "tanh", ""): ("Hyperbolic tangent", "r"),
    ("GatedFeedForward", "linear", "gate"): ("Gate", "g"),
    ("GatedFeedForward", "linear", "linear_1"): ("First linear layer", "u"),
    ("GatedFeedForward", "linear", "linear_2"): ("Second linear layer", r"\text{FFN}"),
    ("GatedFeedForward", "silu", ""): ("SiLU of the gate", r"g'"),
    ("GatedFeedForward", "gelu", ""): ("GELU of the gate", r"g'"),
    ("GatedFeedForward", "relu", ""): ("ReLU of the gate", r"g'"),
    ("GatedFeedForward", "multiply", ""): ("Multiply by the gate", "r"),
    ("RelativePositionBias", "embedding", ""): ("Look up relative position biases", "R"),
    ("RelativePositionBias", "rearrange", ""): ("Arrange biases by heads", "R_i"),
    ("ProjectionLayer", "linear", ""): ("Project to the vocabulary", "z"),
    ("MaskedHead", "linear", ""): ("Linear layer of the head", "u"),
    ("MaskedHead", "gelu", ""): ("GELU", "r"),
    ("MaskedHead", "relu", ""): ("ReLU", "r"),
    ("MaskedHead", "silu", ""): ("SiLU", "r"),
    ("", "rearrange", r"\bar x"): ("Take the positions to predict from", "c"),
    ("", "linear", "pooler"): ("Pooler", "u"),
    ("", "tanh", "u"): ("Hyperbolic tangent", "c'"),
    ("", "linear", "label_head"): ("Project to the labels", "z"),
    ("", "linear", "1"): ("Project to the labels", "z"),
    ("", "rearrange", "z"): ("Drop the batch dimension", "z'"),
    ("", "softmax", ""): ("Softmax of the logits", "p"),
    ("", "divide", ""): ("Divide by the temperature", r"\tilde z"),
    ("", "cross_entropy", ""): ("Loss", "L"),
}
"""Title and symbol of an operation.

The key is the class of the block, the kind, and what tells it from others of its kind there: the layer whose matrix it
uses, the symbol of its input, also with "repeated", "unscaled" for a factor of 1, or its number; an empty text for any.
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
    "proj": ("W^P", "b^P"), "projection": ("F", "b^E"), "types": ("W^S", ""), "first": (r"w_{\text{class}}", ""),
    "transform": ("W^H", "b^H"), "pooler": ("W^C", "b^C"), "label_head": ("W^L", "b^L"), "1": ("W^L", "b^L"),
}  # fmt: skip
"""Symbols of weight and bias by the name of their layer."""

TABLE_SYMBOLS: Final = {"LearnedPositions": r"W^{\text{pos}}", "RelativePositionBias": "W^B"}
"""Symbols of the tables of blocks that look up something other than tokens."""

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

BLOCK_FORMULAS: Final = {
    ("LearnedPositions", "rearrange"): ("{y}_t = {x}_t", {"x": "{dx}_t = \\left( {dy} \\right)_t"}),
    ("ReadoutLayer", "rearrange"): (
        "{y} = \\text{{the first rows of }} {x}",
        {"x": "{dx} = {dy} \\text{{ in the first rows, else }} 0"},
    ),
    ("BertEmbedding", "rearrange"): ("{y} = {x}_0", {"x": "{dx}_0 = {dy}"}),
    ("RelativePositionBias", "embedding"): (
        "{y}_{{tj}} = {w}_{{\\text{{bucket}}(j - t)}}",
        {"w": "{dw}_b = \\sum_{{t, j: \\text{{bucket}}(j - t) = b}} \\left( {dy} \\right)_{{tj}}"},
    ),
}
"""Formula and gradients of an operation of one block that `FORMULAS` and `GRADIENTS` say less plainly."""

TITLE_FORMULAS: Final = {
    **dict.fromkeys(
        ("Split queries into heads", "Split keys into heads", "Split values into heads"),
        (
            "\\left( {y} \\right)_{{t, k}} = {x}_{{t, (i - 1) d_k + k}}",
            {"x": "{dx}_{{t, (i - 1) d_k + k}} = \\left( {dy} \\right)_{{t, k}}"},
        ),
    ),
    "Transpose keys": ("\\left( {y} \\right)_{{k, t}} = \\left( {x} \\right)_{{t, k}}",
                       {"x": "\\left( {dx} \\right)_{{t, k}} = \\left( {dy} \\right)_{{k, t}}"}),
    "Concatenate heads": ("{y}_{{t, (i - 1) d_k + k}} = \\left( {x} \\right)_{{t, k}}",
                          {"x": "\\left( {dx} \\right)_{{t, k}} = \\left( {dy} \\right)_{{t, (i - 1) d_k + k}}"}),
}  # fmt: skip
"""Formula and gradients of a step that moves numbers, by its title: heads are counted from 1, the rest from 0."""

GELU_BY_TANH: Final = (
    "{y} = {x} \\Phi({x}), \\Phi(a) \\approx \\frac{{1}}{{2}} \\left( 1 + \\tanh \\left( "
    "\\sqrt{{2 / \\pi}} (a + 0.044715 a^3) \\right) \\right)"
)

GELU_BY_TANH_GRADIENT: Final = (
    "{dx} = {dy} \\odot \\left( \\frac{{1 + \\tanh v}}{{2}} + \\frac{{{x}}}{{2}} (1 - \\tanh^2 v) v' \\right), "
    "v = \\sqrt{{2 / \\pi}} ({x} + 0.044715 {x}^3), v' = \\sqrt{{2 / \\pi}} (1 + 0.134145 {x}^2)"
)

GRADIENTS: Final[dict[str, dict[str, str]]] = {
    "embedding": {"w": "{dw}_v = \\sum_{{t: \\text{{token}}(t) = v}} \\left( {dy} \\right)_t"},
    "linear": {"x": "{dx} = {dy} {w}", "w": "{dw} = {dyT} {x}", "b": "{db} = \\sum_t \\left( {dy} \\right)_t"},
    "matmul": {"x": "{dx} = {dy} {wT}", "w": "{dw} = {xT} {dy}"},
    "add": {"x": "{dx} = {dy}", "w": "{dw} = {dy}"},
    "subtract": {"x": "{dx} = {dy}", "w": "{dw} = -{dy}"},
    "multiply": {"x": "{dx} = {dy} \\cdot {w}", "w": "{dw} = {dy} \\cdot {x}"},
    "divide": {"x": "{dx} = {dy} / {w}"},
    "layer_norm": {
        "x": "{dx} = \\frac{{1}}{{s}} \\left( g - \\text{{mean}}(g) - \\hat x \\cdot \\text{{mean}}"
        "(g \\odot \\hat x) \\right), g = \\alpha \\odot {dy}, \\hat x = \\frac{{{x} - \\mu}}{{s}}, "
        "s = \\sqrt{{\\sigma^2 + \\epsilon}}",
        "w": "{dw} = \\sum_t \\left( {dy} \\right)_t \\odot \\hat x_t",
        "b": "{db} = \\sum_t \\left( {dy} \\right)_t",
    },
    "rms_norm": {
        "x": "{dx} = \\frac{{1}}{{s}} \\left( g - \\hat x \\cdot \\text{{mean}}(g \\odot \\hat x) \\right), "
        "g = \\alpha \\odot {dy}, \\hat x = {x} / s, s = \\sqrt{{\\text{{mean}}({x}^2) + \\epsilon}}",
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
    "rearrange": {"x": "{dx} = \\text{{the same numbers as }} {dy}", "w": "{dw} = \\text{{the same numbers as }} {dy}"},
    "cross_entropy": {"x": "{dx} = (p - q) / n"},
}
"""Gradients of each kind of operation by what it reads, one line of the chain rule each."""

NOTES: Final = {
    ("MultiHeadAttention", "divide"): "The dot product of two random vectors of d_k numbers with variance 1 has "
    "variance d_k. Without the division, large d_k push the softmax where its gradient is almost zero.",
    ("MultiHeadAttention", "masked_fill"): "A masked score of minus infinity becomes a weight of zero. The softmax's "
    "gradient is proportional to the weight, so nothing flows back through a masked position.",
    ("MultiHeadAttention", "linear"): "The matrix is stored as (outputs, inputs), hence the transpose. Head i of h, "
    "counted from 1, is columns (i - 1) d_k to i d_k - 1 of the output, counted from 0.",
    ("ResidualConnection", "add"): "The gradient of a sum goes to both of its terms unchanged: one path around the "
    "sub-layer, one through it.",
    ("InputEmbedding", "multiply"): "The paper gives no reason. Embeddings start with variance 1 / d_model, so the "
    "factor gives them the magnitude of the positional encoding.",
    ("", "cross_entropy"): "q is the target: 1 at the right token or label and 0 elsewhere. The gradient of softmax "
    "and logarithm together is p - q.",
}  # fmt: skip
"""What is worth knowing about a step, by the class of the block and the kind."""

SMOOTHED_NOTE: Final = (
    "q is the target smoothed by ε: 1 - ε on the right token, and ε / V on every token. The gradient of softmax and "
    "logarithm together is p - q."
)
"""Note on a loss with label smoothing."""

BLOCK_NOTES: Final = {
    ("Multi-head cross-attention", "Queries"): "Queries come from the decoder, keys and values from the encoder's "
    "output.",
    ("Multi-head cross-attention", "Keys"): "The encoder's output has S rows, and so have the keys: (B, S, d_model). "
    "Some descriptions give the length of the target here, which is the number of queries.",
    ("Multi-head cross-attention", "Values"): "The encoder's output has S rows, and so have the values: (B, S, "
    "d_model). Some descriptions give the length of the target here, which is the number of queries.",
    ("Multi-head cross-attention", "Scores"): "T queries of the decoder by S keys of the encoder: (B, h, T, S). Some "
    "descriptions give the length of the target for both, which holds for self-attention alone.",
    ("Multi-head cross-attention", "Weighted sum of values"): "One row per query: (B, h, T, d_k), whatever the "
    "length of the source. Some descriptions give the length of the source here.",
    ("Masked multi-head self-attention", "Weighted sum of values"): "One row per query: (B, h, T, d_k). Some "
    "descriptions give the length of the source here.",
}  # fmt: skip
"""What is worth knowing about a step of a block, where other descriptions of the model differ."""

PRE_NORM_NOTE: Final = (
    "This model normalizes before each sub-layer (pre-norm). In the paper (post-norm) the norm follows the sum: "
    "LayerNorm(x + Sublayer(x))."
)

TITLE_NOTES: Final = {
    "Softmax of the logits": "The loss is computed from the logits by the logarithm of the softmax, which is more "
    "exact, so no gradient passes through this step.",
    "Set masked weights to 0": "Masked weights are 0 already, except in a row whose positions are all masked: its "
    "softmax is 0 / 0, and becomes 0 here, with its gradient.",
    "Mute heads": "Not a step of the paper: you muted these heads, so their weights become 0.",
    "Output projection": "The matrix is stored as (outputs, inputs), hence the transpose. Its columns (i - 1) d_k to "
    "i d_k - 1, counted from 0, multiply head i of h, counted from 1.",
    "Keep the embeddings unscaled": "The paper multiplies by √d_model here; this model multiplies by 1.",
    "Keep the scores unscaled": "The paper divides by √d_k here; this model multiplies by 1.",
    "Repeat keys for their queries": "Grouped-query attention: h / h_kv heads of queries share one head of keys and "
    "values (Ainslie et al. 2023, Sec. 2.2). The gradient of the shared head is the sum over its queries.",
    "Repeat values for their queries": "Grouped-query attention: h / h_kv heads of queries share one head of keys and "
    "values (Ainslie et al. 2023, Sec. 2.2). The gradient of the shared head is the sum over its queries.",
    "Rotated first half": "A feature of the first half and one of the second are rotated together, by the position "
    "times an angle of their own. The score of a query and a key then depends on their distance alone.",
    "Look up relative position biases": "The bias of a pair depends on the distance between query and key alone; long "
    "distances share buckets. Every layer adds the same biases to its scores.",
    "Keep the positions to predict from": "The head reads these positions alone, so the last layer computes no others. "
    "They still attend to all positions.",
    "Split the image into patches": "Each row is one patch: its pixels, channel by channel.",
}
"""What is worth knowing about a step, by its title."""

TITLE_SOURCES: Final = {
    "Mute heads": "",
    "Softmax of the logits": "Vaswani et al. 2017, Sec. 3.4",
    "GELU": "Hendrycks and Gimpel 2016, Sec. 2",
    "Repeat keys for their queries": "Ainslie et al. 2023, Sec. 2.2",
    "Repeat values for their queries": "Ainslie et al. 2023, Sec. 2.2",
    "Add position bias": "Raffel et al. 2020, Sec. 2.1",
    "Look up the class token": "Dosovitskiy et al. 2021, Sec. 3.1, Eq. 1",
    "Prepend the class token": "Dosovitskiy et al. 2021, Sec. 3.1, Eq. 1",
    "Pooler": "Devlin et al. 2019, Sec. 3",
    "Project to the labels": "Devlin et al. 2019, Sec. 4.1",
}
"""Source of a step whose block names none, or another one, by its title."""
