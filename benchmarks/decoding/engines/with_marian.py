"""Marian's Python interface, for `benchmarks/decoding/text_files.py` and `throughput.py`.

Marian does not compute exactly what this project's models compute, and no setting changes that:

- Its decoder begins with a vector of zeros instead of the embedding of BOS.
- The frequencies of its sinusoidal positions are 10000^(-i / (d_model / 2 - 1)) instead of 10000^(-2i / d_model).
- In a pre-norm decoder, keys and values of self-attention are normalized in the first step alone.

The last point spoils pre-norm models: with the small model of the benchmarks, 50 lines have a BLEU of 0.6 instead of
38, and lengths of their own, so its speed says nothing. Post-norm models lose some quality; the results name their
BLEU. Everything else agrees:
`tests/interop/test_marian_engine.py` compares the tokens of models that are like Marian's in these three points.

The package from the index has no intgemm types for weights that are quantized as they are loaded; "packed8" is
FBGEMM's int8, which uses what the processor has, and no variable keeps it from AVX-512. It needs --optimize.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from decoder import EOS, UNK, Engine, run
from pymarian import Translator
from safetensors.numpy import load_file

NEVER = -1e4
"""Logit of EOS where all lengths are fixed."""
GEMM_TYPES = {"int8": "packed8 --optimize", "float32": "float32"}
WORKSPACE_MIB = 512


def convert(order: dict[str, Any], folder: Path) -> None:
    """Writes the order's weights as Marian's model.npz, in float32, and a vocabulary that names tokens by number."""
    sizes, weights = order["sizes"], load_file(order["weights"])
    is_pre = sizes["norm_order"] == "pre"
    halves = np.r_[0 : sizes["d_model"] : 2, 1 : sizes["d_model"] : 2]
    bias = weights.get("projection_layer.proj.bias", np.zeros(sizes["vocabulary"], np.float32)).copy()
    if any(case["fixed"] for case in order.get("cases", ())):
        bias[EOS] = NEVER
    arrays = {"Wemb": weights["src_embed.embedding.weight"][:, halves], "decoder_ff_logit_out_b": bias}
    for side in ("encoder", "decoder"):
        for index in range(sizes.get(f"{side}_layers", sizes["N"])):
            name = f"{side}.layers.{index}"
            arrays |= layer(weights, name, f"{side}_l{index + 1}", "_pre" if is_pre else "", halves)
        if is_pre:
            arrays |= norm(weights, f"{side}.norm", f"{side}_top", "", halves)
    settings = {
        "version": "v1.12.0", "type": "transformer", "dim-emb": sizes["d_model"],
        "dim-vocabs": [sizes["vocabulary"]] * 2, "enc-depth": sizes.get("encoder_layers", sizes["N"]),
        "dec-depth": sizes.get("decoder_layers", sizes["N"]), "transformer-heads": sizes["h"],
        "transformer-dim-ffn": sizes["d_ff"], "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu",
        "transformer-preprocess": "n" if is_pre else "", "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-emb": "d", "transformer-postprocess-top": "n" if is_pre else "",
        "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
        "transformer-train-position-embeddings": False, "transformer-tied-layers": [],
        "transformer-guided-alignment-layer": "last", "tied-embeddings-all": True, "tied-embeddings-src": False,
        "tied-embeddings": False, "skip": False, "layer-normalization": False, "input-types": [], "ulr": False,
    }  # fmt: skip
    text = json.dumps(settings, indent=1) + "\0"  # JSON is YAML; Marian reads it as a C string
    items: dict[str, Any] = {
        name: np.ascontiguousarray(np.atleast_2d(array), np.float32) for name, array in arrays.items()
    }
    items["special:model.yml"] = np.frombuffer(text.encode(), np.int8)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {name: index for index, name in enumerate(token_names(sizes["vocabulary"]))}
    (folder / "vocabulary.yml").write_text("".join(f'"{name}": {index}\n' for name, index in vocabulary.items()))
    np.savez(folder / "model.npz", **items)


def layer(
    weights: dict[str, np.ndarray], name: str, theirs: str, suffix: str, halves: np.ndarray
) -> dict[str, np.ndarray]:
    """One encoder or decoder layer under Marian's names."""
    arrays: dict[str, np.ndarray] = {}
    blocks = [("self_attention_block", "self")]
    if f"{name}.cross_attention_block.W_q.weight" in weights:
        blocks.append(("cross_attention_block", "context"))
    for place, (block, their_block) in enumerate(blocks):
        for matrix in "qkv":
            arrays[f"{theirs}_{their_block}_W{matrix}"] = weights[f"{name}.{block}.W_{matrix}.weight"][:, halves].T
            arrays[f"{theirs}_{their_block}_b{matrix}"] = weights[f"{name}.{block}.W_{matrix}.bias"]
        arrays[f"{theirs}_{their_block}_Wo"] = weights[f"{name}.{block}.W_o.weight"][halves].T
        arrays[f"{theirs}_{their_block}_bo"] = weights[f"{name}.{block}.W_o.bias"][halves]
        norm_name = f"{name}.residual_connections.{place}.norm"
        arrays |= norm(weights, norm_name, f"{theirs}_{their_block}_Wo", suffix, halves)
    forward = f"{name}.feed_forward_block"
    return arrays | {
        f"{theirs}_ffn_W1": weights[f"{forward}.linear_1.weight"][:, halves].T,
        f"{theirs}_ffn_b1": weights[f"{forward}.linear_1.bias"],
        f"{theirs}_ffn_W2": weights[f"{forward}.linear_2.weight"][halves].T,
        f"{theirs}_ffn_b2": weights[f"{forward}.linear_2.bias"][halves],
        **norm(weights, f"{name}.residual_connections.{len(blocks)}.norm", f"{theirs}_ffn_ffn", suffix, halves),
    }


def norm(
    weights: dict[str, np.ndarray], name: str, theirs: str, suffix: str, halves: np.ndarray
) -> dict[str, np.ndarray]:
    """A layer normalization under Marian's names."""
    return {
        f"{theirs}_ln_scale{suffix}": weights[f"{name}.alpha"][halves],
        f"{theirs}_ln_bias{suffix}": weights[f"{name}.beta"][halves],
    }


def token_names(vocabulary: int) -> list[str]:
    """Names of all tokens; Marian demands those of EOS and UNK."""
    names = [f"t{index}" for index in range(vocabulary)]
    names[EOS], names[UNK] = "</s>", "<unk>"
    return names


class Marian(Engine):
    """`pymarian.Translator`, which sorts by length and forms batches itself; a worker has one thread."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.names = token_names(order["sizes"]["vocabulary"])
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(order.get("converted", temporary), "marian")
            if not (folder / "model.npz").exists():
                convert(order, folder)
            vocabulary = folder / "vocabulary.yml"
            self.translator = Translator(
                f"--models {folder / 'model.npz'} --vocabs {vocabulary} {vocabulary} --cpu-threads {order['workers']} "
                f"--gemm-type {GEMM_TYPES[order['precision']]} --workspace {WORKSPACE_MIB} --allow-unk "
                "--maxi-batch-sort src --max-length 1000 --log-level warn --quiet-translation"
            )

    def prepare(self, sources: list[list[int]]) -> list[str]:
        """Tokens by name, without EOS, which Marian adds."""
        return [" ".join([self.names[token] for token in source if token != EOS]) for source in sources]

    def tokens_of(self, translated: list[str]) -> list[list[int]]:
        """Names to ids."""
        return [[int(name[1:]) if name[0] == "t" else UNK for name in line.split()] for line in translated]

    def translate(self, prepared: list[str], case: dict[str, Any]) -> list[str]:
        """Implements `Engine.translate`, with Marian's own limit of three target tokens for each source token."""
        size = case["batch"] or len(prepared)
        options = {"beam-size": case["beam"], "normalize": 1.0 if case["beam"] > 1 else 0.0, "maxi-batch": 1000}
        options |= {"mini-batch": 1000, "mini-batch-words": size} if case["by_tokens"] else {"mini-batch": size}
        if case["fixed"]:
            options["max-length-factor"] = case["limit"] / (len(prepared[0].split()) + 1)
        return self.translator.translate(prepared, **options)


if __name__ == "__main__":
    run(Marian, ("pymarian", "numpy"))
