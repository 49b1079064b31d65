"""CTranslate2's Python interface, for `benchmarks/decoding/throughput.py`."""

import tempfile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from decoder import EOS, NORM_EPS, UNK, Engine, run, sinusoid
from safetensors.numpy import load_file


def convert(order: dict[str, Any], folder: str) -> None:
    """Writes the order's weights as a model of CTranslate2, in float32; it rounds them as it loads them."""
    sizes, weights = order["sizes"], load_file(order["weights"])
    is_pre = sizes["norm_order"] == "pre"
    options = {"pre_norm": is_pre, "activation": common_spec.Activation.RELU}
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(sizes.get("encoder_layers", sizes["N"]), sizes["h"], **options),
        transformer_spec.TransformerDecoderSpec(sizes.get("decoder_layers", sizes["N"]), sizes["h"], **options),
    )
    spec.config.layer_norm_epsilon = NORM_EPS
    embedding = weights["src_embed.embedding.weight"]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = embedding
    for name, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        side.position_encodings.encodings = sinusoid(sizes["positions"], sizes["d_model"])
        if is_pre:
            copy_norm(side.layer_norm, weights, f"{name}.norm")
        for index, layer in enumerate(side.layer):
            copy_layer(layer, weights, f"{name}.layers.{index}")
    tokens = [f"t{index}" for index in range(sizes["vocabulary"])]
    tokens[:4] = ["<pad>", "<s>", "</s>", "<unk>"]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token, spec.config.add_source_eos = "<s>", False
    spec.validate()
    spec.optimize()
    spec.save(folder)


def copy_layer(layer: Any, weights: dict[str, np.ndarray], prefix: str) -> None:
    """One encoder or decoder layer."""
    attention, norm = f"{prefix}.self_attention_block", f"{prefix}.residual_connections"
    copy_linear(layer.self_attention.linear[0], weights, *(f"{attention}.W_{name}" for name in "qkv"))
    copy_linear(layer.self_attention.linear[1], weights, f"{attention}.W_o")
    copy_norm(layer.self_attention.layer_norm, weights, f"{norm}.0.norm")
    has_source = f"{prefix}.cross_attention_block.W_q.weight" in weights
    if has_source:
        source = f"{prefix}.cross_attention_block"
        copy_linear(layer.attention.linear[0], weights, f"{source}.W_q")
        copy_linear(layer.attention.linear[1], weights, f"{source}.W_k", f"{source}.W_v")
        copy_linear(layer.attention.linear[2], weights, f"{source}.W_o")
        copy_norm(layer.attention.layer_norm, weights, f"{norm}.1.norm")
    copy_linear(layer.ffn.linear_0, weights, f"{prefix}.feed_forward_block.linear_1")
    copy_linear(layer.ffn.linear_1, weights, f"{prefix}.feed_forward_block.linear_2")
    copy_norm(layer.ffn.layer_norm, weights, f"{norm}.{2 if has_source else 1}.norm")


def copy_linear(linear: Any, weights: dict[str, np.ndarray], *names: str) -> None:
    """One or more linear layers side by side."""
    linear.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    linear.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def copy_norm(norm: Any, weights: dict[str, np.ndarray], name: str) -> None:
    """A layer normalization."""
    norm.gamma, norm.beta = weights[f"{name}.alpha"], weights[f"{name}.beta"]


class CTranslate2(Engine):
    """`Translator.translate_batch`, which sorts by length and forms batches itself."""

    def __init__(self, order: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = order.get("converted", temporary)
            if not Path(folder, "model.bin").exists():
                convert(order, folder)
            self.translator = ctranslate2.Translator(
                folder, device="cpu", compute_type=order["precision"], inter_threads=order["workers"],
                intra_threads=order["threads"],
            )  # fmt: skip
        vocabulary = order["sizes"]["vocabulary"]
        self.names = [f"t{index}" for index in range(vocabulary)]
        self.names[EOS] = "</s>"

    def prepare(self, sources: list[list[int]]) -> list[list[str]]:
        """Tokens by name."""
        return [[self.names[token] for token in source] for source in sources]

    def tokens_of(self, translated: list[Any]) -> list[list[int]]:
        """Names to ids."""
        return [[int(name[1:]) if name[0] == "t" else UNK for name in result.hypotheses[0]] for result in translated]

    def translate(self, prepared: list[list[str]], case: dict[str, Any]) -> list[Any]:
        """Implements `Engine.translate`."""
        return self.translator.translate_batch(
            prepared, beam_size=case["beam"], max_batch_size=case["batch"],
            batch_type="tokens" if case["by_tokens"] else "examples", length_penalty=1.0 if case["beam"] > 1 else 0.0,
            min_decoding_length=case["limit"] if case["fixed"] else 1, max_decoding_length=case["limit"],
        )  # fmt: skip


if __name__ == "__main__":
    run(CTranslate2, ("ctranslate2", "numpy"))
