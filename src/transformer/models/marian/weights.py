"""Between a Marian model of ours and the published format: names, numbering of tokens, configuration."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from transformer.blocks import halved_sinusoid
from transformer.config import Config
from transformer.errors import BundleError
from transformer.models.huggingface.format import MOST, Format
from transformer.models.huggingface.generation_config import GENERATION, described_writing
from transformer.models.huggingface.key_mapping import (
    ACTIVATION_NAMES,
    PUBLISHED_ACTIVATIONS,
    Renamed,
    chosen,
    given,
    layer_norm,
    linear,
    refuse_architectures,
    refuse_beyond,
    refuse_unknown,
)
from transformer.models.marian.config import MarianConfig
from transformer.models.transformer.config import TransformerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.sentencepiece import SentencePieceTokenizer
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID, UNK_ID

SOURCE, TARGET, OUTPUT = "src_embed.embedding.weight", "tgt_embed.embedding.weight", "projection_layer.proj.weight"
BIAS: Final = "projection_layer.proj.bias"
SHARED, HEAD = "model.shared.weight", "lm_head.weight"
OWN: Final = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
MOST_POSITIONS: Final = 10**5
"""Their sinusoids are computed."""
NEVER: Final = -100.0
"""The logit of BOS, which published models do not have: as good as never, and little in the mean of smoothed labels."""
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
FIXED: Final[dict[str, tuple[Any, ...]]] = {
    "normalize_before": (False,), "normalize_embedding": (False,), "add_final_layer_norm": (False,),
    "add_bias_logits": (False,), "static_position_embeddings": (True,),
    "is_encoder_decoder": (True,), "is_decoder": (False,), "encoder_layerdrop": (0, 0.0), "decoder_layerdrop": (0, 0.0),
    "forced_bos_token_id": (None,),
}  # fmt: skip
"""Settings of which only these values are known; the others of a configuration say nothing of what is computed."""
SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, TARGET_VOCABULARY_FILE = (
    "source.spm", "target.spm", "vocab.json", "target_vocab.json"
)  # fmt: skip


def read(published: Mapping[str, Any], names: Collection[str], files: Mapping[str, bytes]) -> dict[str, Any]:
    """The settings that are not only called otherwise; vocabularies are counted in our numbering."""
    del names
    refuse_architectures(published, ("MarianMTModel", "MarianModel"))
    refuse_unknown(published, FIXED)
    shares_inputs = published.get("share_encoder_decoder_embeddings", True)
    shared = ("all" if shares_inputs else "target") if published.get("tie_word_embeddings", True) else "none"
    refuse_beyond(published, SETTINGS["src_seq_len"][0], MOST_POSITIONS)
    found = {
        "tgt_seq_len": given(published, *SETTINGS["src_seq_len"]), "share_embeddings": shared,
        "activation": chosen(published, "activation_function", ACTIVATION_NAMES, "gelu"),
        "unk_id": _vocabulary(files, VOCABULARY_FILE)["<unk>"],
    }  # fmt: skip
    ids = {name: published.get(*named) for name, named in IDS.items()}
    source: int = given(published, *SETTINGS["src_vocab_size"])
    refuse_beyond(published, "decoder_vocab_size", MOST)
    target: int = published.get("decoder_vocab_size") or source
    if None in ids.values():
        raise BundleError(f"{', '.join(theirs for theirs, _ in IDS.values())} must all be there; complete config.json")
    if (most := max(ids.values())) >= target:
        raise BundleError(f"{most} is a control token, but none of the {target:,} tokens of the target")
    numbered = MarianConfig(**found, **ids)
    sizes = {f"{side}_vocab_size": len(published_order(numbered, n)) for side, n in (("src", source), ("tgt", target))}
    return found | sizes


def write(config: MarianConfig) -> dict[str, Any]:
    """What `read` reads."""
    return {
        "architectures": ["MarianMTModel"], "activation_function": PUBLISHED_ACTIVATIONS[config.activation],
        "vocab_size": published_size(config, config.src_vocab_size),
        "decoder_vocab_size": published_size(config, config.tgt_vocab_size),
        "encoder_layers": config.encoder_layers or config.N, "decoder_layers": config.decoder_layers or config.N,
        "encoder_attention_heads": config.encoder_h or config.h,
        "decoder_attention_heads": config.decoder_h or config.h, "encoder_ffn_dim": config.encoder_d_ff or config.d_ff,
        "decoder_ffn_dim": config.decoder_d_ff or config.d_ff,
        "share_encoder_decoder_embeddings": config.share_embeddings == "all",
        "tie_word_embeddings": config.share_embeddings != "none", "forced_eos_token_id": config.eos_id,
        "is_encoder_decoder": True, "static_position_embeddings": True,
    }  # fmt: skip


def published_order(config: MarianConfig, size: int) -> list[int]:
    """For each of our ids, that of the published model: the control ids, then all others in their order.

    What the decoder begins with stands twice where it is padding, as in every OPUS-MT model: as PAD and as BOS.
    """
    control = {PAD_ID: config.pad_id, BOS_ID: config.start_id, EOS_ID: config.eos_id, UNK_ID: config.unk_id}
    taken = set(control.values())
    return [control[each] for each in range(N_SPECIAL_TOKENS)] + [each for each in range(size) if each not in taken]


def published_size(config: MarianConfig, size: int | None) -> int:
    """How many tokens the published model has where ours has `size`."""
    assert size is not None
    return size - N_SPECIAL_TOKENS + len({config.pad_id, config.start_id, config.eos_id, config.unk_id})


def read_tokenizers(config: Config, files: Mapping[str, bytes]) -> TokenizerPair:
    """The tokenizers of a published model.

    Raises:
        BundleError: a file is missing, or does not go with the configuration.
    """
    assert isinstance(config, MarianConfig)
    sides: list[SentencePieceTokenizer] = []
    own_target = TARGET_VOCABULARY_FILE if TARGET_VOCABULARY_FILE in files else VOCABULARY_FILE
    for model, name, size in (
        (SOURCE_FILE, VOCABULARY_FILE, config.src_vocab_size), (TARGET_FILE, own_target, config.tgt_vocab_size)
    ):  # fmt: skip
        if model not in files:
            raise BundleError(f"{model} is missing; copy the whole folder")
        vocabulary = _vocabulary(files, name)
        if vocabulary["<unk>"] != config.unk_id:
            raise BundleError(
                f"<unk> is {vocabulary['<unk>']} in {name}, {config.unk_id} in {VOCABULARY_FILE}; it must be one"
            )
        pieces, tokens = {token: piece for piece, token in vocabulary.items()}, published_size(config, size)
        if not 0 <= (most := max(pieces)) < tokens:
            raise BundleError(f"{pieces[most]!r} is {most} in {name}, none of the {tokens:,} tokens of the model")
        order = published_order(config, tokens)[N_SPECIAL_TOKENS:]
        sides.append(SentencePieceTokenizer(files[model], [pieces.get(each, f"<{each}>") for each in order]))
    return TokenizerPair(*sides)


def _vocabulary(files: Mapping[str, bytes], name: str) -> dict[str, int]:
    if name not in files:
        raise BundleError(f"{name} is missing; copy the whole folder")
    found = json.loads(files[name])
    if not isinstance(found, dict) or "<unk>" not in found:
        raise BundleError(f"{name} is no vocabulary with <unk>; copy it again")
    return {str(piece): int(token) for piece, token in found.items()}


def layers(config: MarianConfig | TransformerConfig) -> list[Renamed]:
    """The parameters of the layers."""
    entries: list[Renamed] = []
    for side, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        attentions = [("self_attn", "self_attention_block"), ("encoder_attn", "cross_attention_block")]
        attentions = attentions[: 2 if side == "decoder" else 1]
        norms = [*(f"{name}_layer_norm" for name, _ in attentions), "final_layer_norm"]
        for number in range(depth or config.N):
            theirs, ours = f"model.{side}.layers.{number}", f"{side}.layers.{number}"
            for name, block in attentions:
                for matrix, own in (("q_proj", "W_q"), ("k_proj", "W_k"), ("v_proj", "W_v"), ("out_proj", "W_o")):
                    entries += linear(f"{theirs}.{name}.{matrix}", f"{ours}.{block}.{own}")
            for name, own in (("fc1", "linear_1"), ("fc2", "linear_2")):
                entries += linear(f"{theirs}.{name}", f"{ours}.feed_forward_block.{own}")
            for place, name in enumerate(norms):
                entries += layer_norm(f"{theirs}.{name}", f"{ours}.residual_connections.{place}.norm")
    return entries


def matrices(share_embeddings: str) -> list[Renamed]:
    """The matrices of the source, the target and the output, of which some are one."""
    if share_embeddings == "all":
        return [Renamed(SHARED, (SOURCE,), tied=(TARGET, OUTPUT), aliases=(*OWN, HEAD))]
    if share_embeddings == "target":
        return [Renamed(OWN[0], (SOURCE,)), Renamed(OWN[1], (TARGET,), tied=(OUTPUT,), aliases=(HEAD,))]
    return [Renamed(OWN[0], (SOURCE,)), Renamed(OWN[1], (TARGET,)), Renamed(HEAD, (OUTPUT,))]


def table(config: MarianConfig) -> list[Renamed]:
    """Every parameter; tokens are numbered as published."""
    return [
        *layers(config), *matrices(config.share_embeddings), Renamed("final_logits_bias", (BIAS,), added_axes=1)
    ]  # fmt: skip


def write_tokenizers(config: Config, tokenizers: TokenizerPair) -> dict[str, bytes]:
    """The files that `read_tokenizers` reads.

    Raises:
        BundleError: they are not those of SentencePiece.
    """
    assert isinstance(config, MarianConfig)
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


class MarianFormat(Format):
    """As `Format`, with tokens that are numbered anew and two tokenizers of SentencePiece."""

    def read_weights(self, config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As of `Format`."""
        assert isinstance(config, MarianConfig)
        given = dict(tensors)
        for side in ("encoder", "decoder"):
            name = f"model.{side}.embed_positions.weight"
            positions = given.pop(name, None)
            if positions is not None and not torch.allclose(
                positions.float(), halved_sinusoid(*positions.shape), atol=1e-3
            ):
                raise BundleError(f"{name} is not the table of sinusoids; learned positions are not known here")
        if config.share_embeddings == "none" and SHARED in given:
            shared = given.pop(SHARED)  # of both sides, or of neither where they have their own
            given = dict.fromkeys(OWN, shared) | given
        found = super().read_weights(config, given)
        for name, size in (
            (SOURCE, config.src_vocab_size), (TARGET, config.tgt_vocab_size), (OUTPUT, config.tgt_vocab_size),
            (BIAS, config.tgt_vocab_size),
        ):  # fmt: skip
            expected = published_size(config, size)
            if len(found[name]) != expected:
                raise BundleError(f"{name} has {len(found[name]):,} rows, not the {expected:,} of the configuration")
            found[name] = found[name][published_order(config, expected)]
        if config.start_id == config.pad_id:
            found[BIAS][BOS_ID] = NEVER
        return found

    def write_weights(self, config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As of `Format`; every matrix once."""
        assert isinstance(config, MarianConfig)
        names = [entry.ours[0] for entry in matrices(config.share_embeddings)]
        numbered = {name: _renumbered(config, state[name], start=BOS_ID) for name in names}
        bias = _renumbered(config, state[BIAS], start=PAD_ID)
        return super().write_weights(config, {**state, **numbered, BIAS: bias})

    def read_tokenizers(self, config: Config, files: Mapping[str, bytes]) -> TokenizerPair:
        """As of `Format`."""
        return read_tokenizers(config, files)

    def write_tokenizers(self, config: Config, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """As of `Format`."""
        return write_tokenizers(config, tokenizers)


def _renumbered(config: MarianConfig, rows: Tensor, start: int) -> Tensor:
    """Rows in the published order; `start` is of which of our two ids the published one is that stands twice."""
    order = published_order(config, published_size(config, len(rows)))
    found = rows.new_zeros(len(rows) - N_SPECIAL_TOKENS + len(set(order[:N_SPECIAL_TOKENS])), *rows.shape[1:])
    found[order] = rows
    found[config.start_id] = rows[start if config.start_id == config.pad_id else BOS_ID]
    return found


def write_files(config: MarianConfig) -> dict[str, Any]:
    """How translations are written."""
    return {GENERATION: described_writing(config.start_id, config.eos_id, config.pad_id, config.tgt_seq_len)}


FORMAT: Final = MarianFormat(("marian",), SETTINGS, table, read, write, ids=IDS, write_files=write_files)
