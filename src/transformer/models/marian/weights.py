"""Conversion between the Marian model of this package and the published format: names, token ids, configuration."""

import json
from collections.abc import Collection, Mapping
from typing import Final

import torch
from torch import Tensor

from transformer.blocks import halved_sinusoid
from transformer.config import JsonObject
from transformer.errors import BundleError
from transformer.models.huggingface.format import MAX_SIZE, HuggingFaceFormat
from transformer.models.huggingface.generation_config import encoder_decoder_files
from transformer.models.huggingface.key_mapping import (
    ACTIVATION_NAMES,
    PUBLISHED_ACTIVATIONS,
    ParameterMapping,
    check_architectures,
    check_settings,
    check_size,
    layer_norm,
    linear,
    map_choice,
    setting,
)
from transformer.models.marian.config import MarianConfig
from transformer.models.transformer.config import TransformerConfig
from transformer.tokenizers.huggingface_files import special_token_names
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.sentencepiece import SentencePieceTokenizer
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID, UNK_ID

SOURCE, TARGET, OUTPUT = "src_embed.embedding.weight", "tgt_embed.embedding.weight", "projection_layer.proj.weight"
BIAS: Final = "projection_layer.proj.bias"
SHARED, HEAD = "model.shared.weight", "lm_head.weight"
OWN: Final = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
MAX_POSITIONS: Final = 10**5
"""Limit on the number of positions, as the table of their sinusoids is computed."""
SUPPRESSED_LOGIT: Final = -100.0
"""Output bias of BOS, which published models lack.

It makes BOS practically impossible, yet contributes little to the mean of smoothed labels.
"""
ARCHITECTURES: Final = ("MarianMTModel", "MarianModel")
SETTINGS: Final = {
    "src_vocab_size": ("vocab_size", 58101), "d_model": ("d_model", 1024), "encoder_layers": ("encoder_layers", 12),
    "decoder_layers": ("decoder_layers", 12), "encoder_h": ("encoder_attention_heads", 16),
    "decoder_h": ("decoder_attention_heads", 16), "encoder_d_ff": ("encoder_ffn_dim", 4096),
    "decoder_d_ff": ("decoder_ffn_dim", 4096), "src_seq_len": ("max_position_embeddings", 1024),
    "scale_embedding": ("scale_embedding", False), "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0), "activation_dropout": ("activation_dropout", 0.0),
}  # fmt: skip
IDS: Final = {
    "pad_id": ("pad_token_id", 58100), "eos_id": ("eos_token_id", 0), "start_id": ("decoder_start_token_id", 58100)
}  # fmt: skip
FIXED: Final[dict[str, tuple[object, ...]]] = {
    "normalize_before": (False,), "normalize_embedding": (False,), "add_final_layer_norm": (False,),
    "add_bias_logits": (False,), "static_position_embeddings": (True,),
    "is_encoder_decoder": (True,), "is_decoder": (False,), "encoder_layerdrop": (0, 0.0), "decoder_layerdrop": (0, 0.0),
    "forced_bos_token_id": (None,),
}  # fmt: skip
"""Settings that must have one of these values; the other settings of a configuration do not affect the computation."""
SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, TARGET_VOCABULARY_FILE = (
    "source.spm", "target.spm", "vocab.json", "target_vocab.json"
)  # fmt: skip


def read_settings(published: JsonObject, names: Collection[str], files: Mapping[str, bytes]) -> dict[str, object]:
    """Reads the settings that need more than another name; vocabulary sizes are in the ids of this package."""
    del names
    check_architectures(published, ARCHITECTURES)
    check_settings(published, FIXED)
    shares_inputs = published.get("share_encoder_decoder_embeddings", True)
    shared = ("all" if shares_inputs else "target") if published.get("tie_word_embeddings", True) else "none"
    check_size(published, SETTINGS["src_seq_len"][0], MAX_POSITIONS)
    settings = {
        "tgt_seq_len": setting(published, *SETTINGS["src_seq_len"]), "share_embeddings": shared,
        "activation": map_choice(published, "activation_function", ACTIVATION_NAMES, "gelu"),
        "unk_id": _vocabulary(files, VOCABULARY_FILE)["<unk>"],
    }  # fmt: skip
    ids = {name: published.get(*named) for name, named in IDS.items()}
    source: int = setting(published, *SETTINGS["src_vocab_size"])
    check_size(published, "decoder_vocab_size", MAX_SIZE)
    target: int = published.get("decoder_vocab_size") or source
    if None in ids.values():
        raise BundleError(
            f"{', '.join(hf_name for hf_name, _ in IDS.values())} must all be there; complete config.json"
        )
    if (most := max(ids.values())) >= target:
        raise BundleError(f"{most} is a control token, but none of the {target:,} tokens of the target")
    numbered = MarianConfig(**settings, **ids)
    sizes = {f"{side}_vocab_size": len(published_order(numbered, n)) for side, n in (("src", source), ("tgt", target))}
    return {**settings, **sizes}


def write_settings(config: MarianConfig) -> dict[str, object]:
    """Returns the settings that `read_settings` reads."""
    return {
        "architectures": ["MarianMTModel"], "activation_function": PUBLISHED_ACTIVATIONS[config.activation],
        "vocab_size": published_size(config, config.vocab_sizes[0]),
        "decoder_vocab_size": published_size(config, config.vocab_sizes[1]),
        "encoder_layers": config.encoder_layers or config.N, "decoder_layers": config.decoder_layers or config.N,
        "encoder_attention_heads": config.encoder_h or config.h,
        "decoder_attention_heads": config.decoder_h or config.h, "encoder_ffn_dim": config.encoder_d_ff or config.d_ff,
        "decoder_ffn_dim": config.decoder_d_ff or config.d_ff,
        "share_encoder_decoder_embeddings": config.share_embeddings == "all",
        "tie_word_embeddings": config.share_embeddings != "none", "forced_eos_token_id": config.eos_id,
        "is_encoder_decoder": True, "static_position_embeddings": True,
    }  # fmt: skip


def published_order(config: MarianConfig, size: int) -> list[int]:
    """Returns the published id of each id of this package: special tokens first, then all others in their order.

    If the decoder starts with padding, as in every OPUS-MT model, that id occurs twice: as PAD and as BOS.

    Raises:
        BundleError: A special token has an id beyond the published vocabulary.
    """
    special = {PAD_ID: config.pad_id, BOS_ID: config.start_id, EOS_ID: config.eos_id, UNK_ID: config.unk_id}
    taken = set(special.values())
    if max(taken) >= size:
        raise BundleError(f"the id {max(taken):,} of a special token is not among the {size:,} of the vocabulary")
    return [special[token] for token in range(N_SPECIAL_TOKENS)] + [
        token for token in range(size) if token not in taken
    ]


def published_size(config: MarianConfig, size: int) -> int:
    """Returns the vocabulary size of the published model for a vocabulary of `size` tokens in this package."""
    return size - N_SPECIAL_TOKENS + len({config.pad_id, config.start_id, config.eos_id, config.unk_id})


def _vocabulary(files: Mapping[str, bytes], name: str) -> dict[str, int]:
    """Reads a vocabulary, in which the unknown token is called `<unk>`."""
    if name not in files:
        raise BundleError(f"{name} is missing; copy the whole folder")
    content = json.loads(files[name])
    unknown = special_token_names(files).get("unk_token", "<unk>")
    if not isinstance(content, dict) or unknown not in content:
        raise BundleError(f"{name} is not a vocabulary with {unknown}; copy it again")
    return {"<unk>" if piece == unknown else str(piece): int(token) for piece, token in content.items()}


def layers(config: MarianConfig | TransformerConfig) -> list[ParameterMapping]:
    """Returns the mapping of the parameters of all layers."""
    entries: list[ParameterMapping] = []
    for side, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        attentions = [("self_attn", "self_attention_block"), ("encoder_attn", "cross_attention_block")]
        attentions = attentions[: 2 if side == "decoder" else 1]
        norms = [*(f"{name}_layer_norm" for name, _ in attentions), "final_layer_norm"]
        for number in range(depth or config.N):
            hf_name, our_name = f"model.{side}.layers.{number}", f"{side}.layers.{number}"
            for name, block in attentions:
                for matrix, layer in (("q_proj", "W_q"), ("k_proj", "W_k"), ("v_proj", "W_v"), ("out_proj", "W_o")):
                    entries += linear(f"{hf_name}.{name}.{matrix}", f"{our_name}.{block}.{layer}")
            for name, layer in (("fc1", "linear_1"), ("fc2", "linear_2")):
                entries += linear(f"{hf_name}.{name}", f"{our_name}.feed_forward_block.{layer}")
            for place, name in enumerate(norms):
                entries += layer_norm(f"{hf_name}.{name}", f"{our_name}.residual_connections.{place}.norm")
    return entries


def matrices(share_embeddings: str) -> list[ParameterMapping]:
    """Returns the mapping of the source, target and output matrices, some of which may be shared."""
    if share_embeddings == "all":
        return [ParameterMapping(SHARED, (SOURCE,), tied=(TARGET, OUTPUT), aliases=(*OWN, HEAD))]
    if share_embeddings == "target":
        return [
            ParameterMapping(OWN[0], (SOURCE,)),
            ParameterMapping(OWN[1], (TARGET,), tied=(OUTPUT,), aliases=(HEAD,)),
        ]
    return [ParameterMapping(OWN[0], (SOURCE,)), ParameterMapping(OWN[1], (TARGET,)), ParameterMapping(HEAD, (OUTPUT,))]


def weight_names(config: MarianConfig) -> list[ParameterMapping]:
    """Maps the weight names of Marian to the parameters here, with token ids as published."""
    return [
        *layers(config), *matrices(config.share_embeddings),
        ParameterMapping("final_logits_bias", (BIAS,), added_axes=1),
    ]  # fmt: skip


class MarianFormat(HuggingFaceFormat[MarianConfig]):
    """The Marian format, which has other token ids and two SentencePiece tokenizers."""

    def read_weights(self, config: MarianConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Implements `HuggingFaceFormat.read_weights`."""
        named = dict(tensors)
        for side in ("encoder", "decoder"):
            name = f"model.{side}.embed_positions.weight"
            positions = named.pop(name, None)
            if positions is not None and not torch.allclose(
                positions.float(), halved_sinusoid(*positions.shape), atol=1e-3
            ):
                raise BundleError(f"{name} is not the table of sinusoids; learned positions are not known here")
        if config.share_embeddings == "none" and SHARED in named:
            shared = named.pop(SHARED)  # for the sides that have no matrix of their own
            named = dict.fromkeys(OWN, shared) | named
        state = super().read_weights(config, named)
        source_size, target_size = config.vocab_sizes
        for name, size in ((SOURCE, source_size), (TARGET, target_size), (OUTPUT, target_size), (BIAS, target_size)):
            expected = published_size(config, size)
            if len(state[name]) != expected:
                raise BundleError(f"{name} has {len(state[name]):,} rows, not the {expected:,} of the configuration")
            state[name] = state[name][published_order(config, expected)]
        if config.start_id == config.pad_id:
            state[BIAS][BOS_ID] = SUPPRESSED_LOGIT
        return state

    def write_weights(self, config: MarianConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Implements `HuggingFaceFormat.write_weights`; every matrix is written once."""
        names = [entry.parameters[0] for entry in matrices(config.share_embeddings)]
        numbered = {name: _to_published_order(config, state[name], start=BOS_ID) for name in names}
        bias = _to_published_order(config, state[BIAS], start=PAD_ID)
        return super().write_weights(config, {**state, **numbered, BIAS: bias})

    def read_tokenizers(self, config: MarianConfig, files: Mapping[str, bytes]) -> TokenizerPair:
        """Reads the tokenizers of a published model.

        Raises:
            BundleError: A file is missing or does not match the configuration.
        """
        sides: list[SentencePieceTokenizer] = []
        source_size, target_size = config.vocab_sizes
        own_target = TARGET_VOCABULARY_FILE if TARGET_VOCABULARY_FILE in files else VOCABULARY_FILE
        for model, name, size in (
            (SOURCE_FILE, VOCABULARY_FILE, source_size), (TARGET_FILE, own_target, target_size)
        ):  # fmt: skip
            if model not in files:
                raise BundleError(f"{model} is missing; copy the whole folder")
            vocabulary = _vocabulary(files, name)
            end = special_token_names(files).get("eos_token", "</s>")
            if vocabulary.get(end, config.eos_id) != config.eos_id:
                raise BundleError(
                    f"{end} is {vocabulary[end]} in {name}, but eos_token_id={config.eos_id} in config.json; it must "
                    "be one, copy both files from one folder"
                )
            if vocabulary["<unk>"] != config.unk_id:
                raise BundleError(
                    f"<unk> is {vocabulary['<unk>']} in {name}, {config.unk_id} in {VOCABULARY_FILE}; it must be one"
                )
            pieces, tokens = {token: piece for piece, token in vocabulary.items()}, published_size(config, size)
            if not 0 <= (most := max(pieces)) < tokens:
                raise BundleError(f"{pieces[most]!r} is {most} in {name}, none of the {tokens:,} tokens of the model")
            order = published_order(config, tokens)[N_SPECIAL_TOKENS:]
            sides.append(SentencePieceTokenizer(files[model], [pieces.get(token, f"<{token}>") for token in order]))
        return TokenizerPair(*sides)

    def write_tokenizers(self, config: MarianConfig, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """Returns the files that `read_tokenizers` reads.

        Raises:
            BundleError: A tokenizer is not a SentencePiece model.
        """
        files: dict[str, bytes] = {}
        for model, name, tokenizer in (
            (SOURCE_FILE, VOCABULARY_FILE, tokenizers.source), (TARGET_FILE, TARGET_VOCABULARY_FILE, tokenizers.target)
        ):  # fmt: skip
            if not isinstance(tokenizer, SentencePieceTokenizer):
                raise BundleError("the published format has tokenizers of SentencePiece alone")
            order = published_order(config, published_size(config, tokenizer.vocab_size))
            pieces = ["<pad>", "<pad>", "</s>", "<unk>", *tokenizer.vocabulary]
            vocabulary = dict(sorted(zip(pieces, order, strict=True), key=lambda item: item[1]))
            files[model] = tokenizer.model
            files[name] = json.dumps(vocabulary, ensure_ascii=False, indent=2).encode()
        if files[VOCABULARY_FILE] == files[TARGET_VOCABULARY_FILE]:
            del files[TARGET_VOCABULARY_FILE]
        facts = {"tokenizer_class": "MarianTokenizer", "model_max_length": config.src_seq_len}
        facts["separate_vocabs"] = TARGET_VOCABULARY_FILE in files
        special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        files["tokenizer_config.json"] = json.dumps(facts | special, indent=2).encode()
        return files


def _to_published_order(config: MarianConfig, rows: Tensor, start: int) -> Tensor:
    """Returns rows in the published order; `start` is the id whose row is used if PAD and BOS are the same token."""
    order = published_order(config, published_size(config, len(rows)))
    published_rows = rows.new_zeros(len(rows) - N_SPECIAL_TOKENS + len(set(order[:N_SPECIAL_TOKENS])), *rows.shape[1:])
    published_rows[order] = rows
    published_rows[config.start_id] = rows[start if config.start_id == config.pad_id else BOS_ID]
    return published_rows


FORMAT: Final = MarianFormat(
    ("marian",), ARCHITECTURES, SETTINGS, weight_names, read_settings, write_settings,
    ids=IDS, required=tuple(IDS), write_files=encoder_decoder_files,
)  # fmt: skip
