"""Between a Marian model of ours and the published format: names, numbering of tokens, configuration."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from transformer.blocks import halved_sinusoid
from transformer.errors import BundleError
from transformer.models.format import Format
from transformer.models.marian.config import MarianConfig
from transformer.models.renaming import refuse_unknown
from transformer.models.transformer.config import TransformerConfig
from transformer.models.writing import GENERATION, described_writing, refuse_other_writing
from transformer.settings import Settings
from transformer.text.control import BOS_ID, EOS_ID, N_CONTROL, PAD_ID, UNK_ID
from transformer.text.pair import TokenizerPair
from transformer.text.sentence_piece import SentencePieceTokenizer

SHARED: Final = "model.shared.weight"
NEVER: Final = -100.0
"""The logit of BOS, which published models do not have: as good as never, and little in the mean of smoothed labels."""
ACTIVATIONS: Final = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
SIZES: Final = {
    "d_model": "d_model", "encoder_layers": "encoder_layers", "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "encoder_h", "decoder_attention_heads": "decoder_h", "encoder_ffn_dim": "encoder_d_ff",
    "decoder_ffn_dim": "decoder_d_ff", "max_position_embeddings": "src_seq_len", "scale_embedding": "scale_embedding",
    "dropout": "dropout", "attention_dropout": "attention_dropout", "activation_dropout": "activation_dropout",
}  # fmt: skip
DEFAULTS: Final[dict[str, Any]] = {
    "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16,
    "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "max_position_embeddings": 1024,
    "scale_embedding": False, "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "activation_function": "gelu", "pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100,
    "vocab_size": 58101, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
}  # fmt: skip
"""What a published configuration means where it says nothing."""
FIXED: Final[dict[str, tuple[Any, ...]]] = {
    "normalize_before": (False,), "normalize_embedding": (False,), "add_final_layer_norm": (False,),
    "add_bias_logits": (False,), "static_position_embeddings": (True,), "extra_pos_embeddings": (0, 1, 2),
    "is_encoder_decoder": (True,), "is_decoder": (False,), "encoder_layerdrop": (0, 0.0), "decoder_layerdrop": (0, 0.0),
    "forced_bos_token_id": (None,),
}  # fmt: skip
"""Settings of which only these values are known; the others of a configuration say nothing of what is computed."""
MOST: Final = {
    "vocab_size": 10**7, "decoder_vocab_size": 10**7, "encoder_layers": 1000, "decoder_layers": 1000, "d_model": 10**5,
    "encoder_ffn_dim": 10**6, "decoder_ffn_dim": 10**6, "max_position_embeddings": 10**5,
}  # fmt: skip
"""No model comes near; a configuration beyond would be read until memory is full."""
SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, TARGET_VOCABULARY_FILE = (
    "source.spm", "target.spm", "vocab.json", "target_vocab.json"
)  # fmt: skip
PLACES: Final = {
    "self_attention_block": "self_attn", "cross_attention_block": "encoder_attn", "W_q": "q_proj", "W_k": "k_proj",
    "W_v": "v_proj", "W_o": "out_proj", "linear_1": "fc1", "linear_2": "fc2", "alpha": "weight", "beta": "bias",
}  # fmt: skip


def read_config(published: Mapping[str, Any], files: Mapping[str, bytes]) -> MarianConfig:
    """The configuration of a published model.

    Args:
        published: content of config.json.
        files: the other small files of its folder by name.

    Raises:
        BundleError: a value that is not known.
    """
    refuse_unknown(published, FIXED)
    names = {*DEFAULTS, *SIZES, *MOST, "decoder_vocab_size"}
    given = DEFAULTS | {name: value for name in names if (value := published.get(name)) is not None}
    for name, most in MOST.items():
        if given.get(name, 0) > most:
            raise BundleError(f"{name}={given[name]} is more than {most:,}; the configuration is damaged")
    activation = given["activation_function"]
    if activation not in ACTIVATIONS:
        raise BundleError(f"activation_function={activation!r} is not known; only {', '.join(ACTIVATIONS)} are")
    sharing = "all" if given["share_encoder_decoder_embeddings"] else "target"
    config = MarianConfig(
        **{ours: given[theirs] for theirs, ours in SIZES.items()},
        tgt_seq_len=given["max_position_embeddings"],
        activation=ACTIVATIONS[activation],  # pyright: ignore[reportArgumentType]
        share_embeddings=sharing if given["tie_word_embeddings"] else "none",
        pad_id=given["pad_token_id"],
        eos_id=given["eos_token_id"], start_id=given["decoder_start_token_id"],
        unk_id=_vocabulary(files, VOCABULARY_FILE)["<unk>"],
    )  # fmt: skip
    refuse_other_writing(
        published, files, start=config.start_id, end=config.eos_id, never=(config.pad_id, config.start_id)
    )
    sizes = given["vocab_size"], given.get("decoder_vocab_size", given["vocab_size"])
    for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        if not 0 <= given[name] < min(sizes):
            raise BundleError(f"{name}={given[name]} is none of the {min(sizes):,} tokens of the configuration")
    ours = {
        f"{side}_vocab_size": len(published_order(config, size))
        for side, size in zip(("src", "tgt"), sizes, strict=True)
    }
    return config.model_copy(update=ours)


def published_order(config: MarianConfig, size: int) -> list[int]:
    """For each of our ids, that of the published model: the control ids, then all others in their order.

    What the decoder begins with stands twice where it is padding, as in every OPUS-MT model: as PAD and as BOS.
    """
    control = {PAD_ID: config.pad_id, BOS_ID: config.start_id, EOS_ID: config.eos_id, UNK_ID: config.unk_id}
    taken = set(control.values())
    return [control[each] for each in range(N_CONTROL)] + [each for each in range(size) if each not in taken]


def published_size(config: MarianConfig, size: int | None) -> int:
    """How many tokens the published model has where ours has `size`."""
    assert size is not None
    return size - N_CONTROL + len({config.pad_id, config.start_id, config.eos_id, config.unk_id})


def read_tokenizers(config: Settings, files: Mapping[str, bytes]) -> TokenizerPair:
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
        pieces = {token: piece for piece, token in vocabulary.items()}
        order = published_order(config, published_size(config, size))[N_CONTROL:]
        sides.append(SentencePieceTokenizer(files[model], [pieces.get(each, f"<{each}>") for each in order]))
    return TokenizerPair(*sides)


def _vocabulary(files: Mapping[str, bytes], name: str) -> dict[str, int]:
    if name not in files:
        raise BundleError(f"{name} is missing; copy the whole folder")
    found = json.loads(files[name])
    if not isinstance(found, dict) or "<unk>" not in found:
        raise BundleError(f"{name} is no vocabulary with <unk>; copy it again")
    return {str(piece): int(token) for piece, token in found.items()}


def names(config: MarianConfig | TransformerConfig) -> Iterator[tuple[str, str]]:
    """Every distinct parameter of the layers: our name, then the published one."""
    linear, norm = ("weight", "bias"), ("alpha", "beta")
    for side, layers in (
        ("encoder", config.encoder_layers or config.N),
        ("decoder", config.decoder_layers or config.N),
    ):
        attentions = ["self_attention_block"] + ["cross_attention_block"] * (side == "decoder")
        norms = ["self_attn_layer_norm"] + ["encoder_attn_layer_norm"] * (side == "decoder") + ["final_layer_norm"]
        for index in range(layers):
            ours, theirs = f"{side}.layers.{index}", f"model.{side}.layers.{index}"
            for block in attentions:
                for matrix in ("W_q", "W_k", "W_v", "W_o"):
                    for kind in linear:
                        yield f"{ours}.{block}.{matrix}.{kind}", f"{theirs}.{PLACES[block]}.{PLACES[matrix]}.{kind}"
            for matrix in ("linear_1", "linear_2"):
                for kind in linear:
                    yield f"{ours}.feed_forward_block.{matrix}.{kind}", f"{theirs}.{PLACES[matrix]}.{kind}"
            for number, name in enumerate(norms):
                for kind in norm:
                    yield f"{ours}.residual_connections.{number}.norm.{kind}", f"{theirs}.{name}.{PLACES[kind]}"


def read_weights(config: Settings, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, by name, of the published ones.

    Raises:
        BundleError: parameters are missing, unknown, or not what the configuration says.
    """
    assert isinstance(config, MarianConfig)
    left = {name: tensor.float() for name, tensor in tensors.items()}
    missing: list[str] = []

    def take(*choices: str) -> Tensor:
        """The first that there is; all of them must hold the same."""
        there = [left.pop(name) for name in choices if name in left]
        if not there:
            missing.append(choices[0])
            return torch.zeros(0)
        if any(not torch.equal(there[0], other) for other in there[1:]):
            raise BundleError(f"{', '.join(choices)} differ, but the configuration makes them one matrix")
        return there[0]

    found = {ours: take(theirs) for ours, theirs in names(config)}
    source_matrix, target_matrix, head = _embeddings(config, take, left)
    bias = take("final_logits_bias")
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name in left:
            table = left.pop(name)
            if not torch.allclose(table, halved_sinusoid(*table.shape), atol=1e-3):
                raise BundleError(f"{name} is not the table of sinusoids; learned positions are not known here")
    if missing or left:
        raise BundleError(f"parameters that are missing: {sorted(missing)}; that are unknown: {sorted(left)}")
    for name, matrix, size in (
        ("src_embed.embedding.weight", source_matrix, config.src_vocab_size),
        ("tgt_embed.embedding.weight", target_matrix, config.tgt_vocab_size),
        ("projection_layer.proj.weight", head, config.tgt_vocab_size),
        ("projection_layer.proj.bias", bias.flatten(), config.tgt_vocab_size),
    ):
        expected = published_size(config, size)
        if len(matrix) != expected:
            raise BundleError(f"{name} has {len(matrix):,} rows, not the {expected:,} of the configuration")
        found[name] = matrix[published_order(config, expected)]
    if config.start_id == config.pad_id:
        found["projection_layer.proj.bias"][BOS_ID] = NEVER
    return found


def _embeddings(
    config: MarianConfig, take: Callable[..., Tensor], left: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices of the source, the target and the output, of which some are one."""
    source, target, head = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
    if config.share_embeddings == "all":
        matrix = take(SHARED, source, target, head)
        return matrix, matrix, matrix
    if config.share_embeddings == "target":
        matrix = take(target, head)
        return take(source), matrix, matrix
    if source not in left:
        matrix = take(SHARED)
        return matrix, matrix, take(head)
    left.pop(SHARED, None)  # which nothing uses where both sides have their own
    return take(source), take(target), take(head)


def write_config(config: Settings) -> dict[str, Any]:
    """What `read_config` reads."""
    assert isinstance(config, MarianConfig)
    given = config.model_dump() | {
        "encoder_layers": config.encoder_layers or config.N, "decoder_layers": config.decoder_layers or config.N,
        "encoder_h": config.encoder_h or config.h, "decoder_h": config.decoder_h or config.h,
        "encoder_d_ff": config.encoder_d_ff or config.d_ff, "decoder_d_ff": config.decoder_d_ff or config.d_ff,
    }  # fmt: skip
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {theirs: given[ours] for theirs, ours in SIZES.items()} | {
        "model_type": "marian", "architectures": ["MarianMTModel"],
        "activation_function": activations[config.activation],
        "vocab_size": published_size(config, config.src_vocab_size),
        "decoder_vocab_size": published_size(config, config.tgt_vocab_size),
        "share_encoder_decoder_embeddings": config.share_embeddings == "all",
        "tie_word_embeddings": config.share_embeddings != "none", "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id, "decoder_start_token_id": config.start_id, "forced_eos_token_id": config.eos_id,
        "is_encoder_decoder": True, "static_position_embeddings": True,
    }  # fmt: skip


def write_weights(config: Settings, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `read_weights` reads; every matrix once."""
    assert isinstance(config, MarianConfig)
    found = {theirs: state[ours].contiguous() for ours, theirs in names(config)}
    matrices = {"src_embed.embedding.weight": SHARED}
    if config.share_embeddings != "all":
        source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
        matrices = {"src_embed.embedding.weight": source, "tgt_embed.embedding.weight": target}
    if config.share_embeddings == "none":
        matrices["projection_layer.proj.weight"] = "lm_head.weight"
    for ours, theirs in matrices.items():
        found[theirs] = _renumbered(config, state[ours], start=BOS_ID)
    found["final_logits_bias"] = _renumbered(config, state["projection_layer.proj.bias"], start=PAD_ID)[None]
    return found


def _renumbered(config: MarianConfig, rows: Tensor, start: int) -> Tensor:
    """Rows in the published order; `start` is of which of our two ids the published one is that stands twice."""
    order = published_order(config, published_size(config, len(rows)))
    found = rows.new_zeros(len(rows) - N_CONTROL + len(set(order[:N_CONTROL])), *rows.shape[1:])
    found[order] = rows
    found[config.start_id] = rows[start if config.start_id == config.pad_id else BOS_ID]
    return found


def write_tokenizers(config: Settings, tokenizers: TokenizerPair) -> dict[str, bytes]:
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
    facts = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": TARGET_VOCABULARY_FILE in files}
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    files["tokenizer_config.json"] = json.dumps(facts | special, indent=2).encode()
    return files


class MarianFormat(Format):
    """As `Format`, with tokens that are numbered anew and two tokenizers of SentencePiece."""

    def read_config(
        self, kind: type[Settings], published: Mapping[str, Any], files: Mapping[str, bytes], names: Collection[str]
    ) -> Settings:
        """As of `Format`."""
        del kind, names
        return read_config(published, files)

    def write_config(self, config: Settings) -> dict[str, Any]:
        """As of `Format`."""
        return write_config(config)

    def read_weights(self, config: Settings, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As of `Format`."""
        return read_weights(config, tensors)

    def write_weights(self, config: Settings, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As of `Format`."""
        return write_weights(config, state)

    def read_tokenizers(self, config: Settings, files: Mapping[str, bytes]) -> TokenizerPair:
        """As of `Format`."""
        return read_tokenizers(config, files)

    def write_tokenizers(self, config: Settings, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """As of `Format`."""
        return write_tokenizers(config, tokenizers)


def write_files(config: MarianConfig) -> dict[str, Any]:
    """How translations are written."""
    return {GENERATION: described_writing(config.start_id, config.eos_id, config.pad_id, config.tgt_seq_len)}


FORMAT: Final = MarianFormat(("marian",), write_files=write_files)
