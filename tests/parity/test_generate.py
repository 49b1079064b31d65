"""Compares our search with `generate` of the transformers package, on models with the same weights."""

import pytest
import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from samples import fast_first
from transformer.decoding import Request, Search, length_normalization, search_all
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.transformer import Transformer, build_transformer

VOCABULARY, POSITIONS, LIMIT = 61, 40, 24
EMBEDDING_SCALE, POSITION_SCALE, WEIGHT_STD, EOS_BIAS = 1.0, 2.0, 0.6, 3.6


def make_reference() -> MarianMTModel:
    """Returns a random model that makes clear choices and whose translations differ in length."""
    torch.manual_seed(4)
    config = MarianConfig(
        vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0,
        attention_dropout=0.0, activation_function="relu", scale_embedding=True, pad_token_id=PAD_ID,
        bos_token_id=BOS_ID, eos_token_id=EOS_ID, forced_eos_token_id=None, decoder_start_token_id=BOS_ID,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=0.1 if "bias" in name else 0.3 if "shared" in name else WEIGHT_STD).add_(
                    float("norm.weight" in name)
                )
            elif parameter is not None:
                parameter.mul_(POSITION_SCALE)  # so that the next token depends on its position
        model.model.shared.weight.mul_(EMBEDDING_SCALE)
        model.final_logits_bias[0, EOS_ID] = EOS_BIAS
    return model


@torch.no_grad()
def convert(model: MarianMTModel) -> Transformer:
    """Returns the same model, built from our blocks."""
    config = model.config
    sizes = {"d_model": config.d_model, "N": config.encoder_layers, "h": config.encoder_attention_heads}
    copy = build_transformer(
        VOCABULARY,
        VOCABULARY,
        POSITIONS,
        POSITIONS,
        d_ff=config.encoder_ffn_dim,
        dropout=0.0,
        norm_order="post",
        **sizes,
    )
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    for embedding in (copy.src_embed.embedding.weight, copy.tgt_embed.embedding.weight):
        embedding.copy_(parameters["model.shared.weight"])
    copy.projection_layer.proj.weight.copy_(parameters["model.shared.weight"])
    copy.projection_layer.proj.bias.copy_(model.final_logits_bias[0])
    copy.src_pos.pe.copy_(model.model.encoder.embed_positions.weight)
    copy.tgt_pos.pe.copy_(model.model.decoder.embed_positions.weight)
    names = {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj"}
    for side in ("encoder", "decoder"):
        norms = ["self_attn_layer_norm", *["encoder_attn_layer_norm"] * (side == "decoder"), "final_layer_norm"]
        for index, layer in enumerate(getattr(copy, side).layers):
            prefix = f"model.{side}.layers.{index}"
            blocks = {"self_attention_block": "self_attn", "cross_attention_block": "encoder_attn"}
            for name, parameter in layer.named_parameters():
                block, _, suffix = name.partition(".")
                if block in blocks:
                    matrix, parameter_kind = suffix.split(".")
                    source = f"{prefix}.{blocks[block]}.{names[matrix]}.{parameter_kind}"
                elif block == "feed_forward_block":
                    source = f"{prefix}.{suffix.replace('linear_', 'fc')}"
                else:
                    number, _, gain = suffix.split(".")
                    source = f"{prefix}.{norms[int(number)]}.{'weight' if gain == 'alpha' else 'bias'}"
                parameter.copy_(parameters[source])
            for residual in layer.residual_connections:
                residual.norm.eps = 1e-5
    return copy.eval()


SOURCES = [[5 + (7 * i * j + i) % 50 for j in range(1, 3 + i % 12)] + [EOS_ID] for i in range(24)]
CASES = {
    "greedy": (1, 1.0, True), "beam 4": (4, 0.0, True), "beam 4, their length penalty 1": (4, 1.0, True),
    "beam 5, their length penalty 0.6, exhaustive": (5, 0.6, "never"), "4-best of 6": (6, 0.6, True),
}  # fmt: skip


@torch.inference_mode()
def generated(model: MarianMTModel, beam: int, alpha: float, stopping: object, n_best: int) -> list[list[tuple]]:
    """Returns the tokens, whether EOS was generated, and the score of the hypotheses of every source."""
    longest = max(map(len, SOURCES))
    src = torch.tensor([source + [PAD_ID] * (longest - len(source)) for source in SOURCES])
    output = model.generate(
        input_ids=src, attention_mask=(src != PAD_ID).long(), num_beams=beam, do_sample=False, max_new_tokens=LIMIT,
        length_penalty=alpha, early_stopping=stopping if beam > 1 else None, num_return_sequences=n_best,
        suppress_tokens=[PAD_ID, BOS_ID, UNK_ID], return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    rows = []
    for row, tokens in enumerate(output.sequences.tolist()):
        generated_ids = tokens[1:]
        ended = EOS_ID in generated_ids
        score = output.sequences_scores[row].item() if beam > 1 else None
        rows.append((generated_ids[: generated_ids.index(EOS_ID)] if ended else generated_ids[:LIMIT], ended, score))
    return [rows[i * n_best : (i + 1) * n_best] for i in range(len(SOURCES))]


@pytest.mark.parametrize("name", fast_first(CASES, 1))
def test_the_same_translations_and_scores_as_generate(name: str) -> None:
    """Catches a different definition of length, a stop one step early or late, and hypotheses in another order."""
    beam, alpha, stopping = CASES[name]
    n_best = 4 if "best" in name else 1
    model = make_reference()
    search = Search(beam, length_normalization(alpha), "early" if stopping is True else "exhaustive", n_best=n_best)
    actual = search_all(convert(model), [Request(source, LIMIT) for source in SOURCES], search)
    expected = generated(model, beam, alpha, stopping, n_best)
    lengths = {len(rows[0][0]) for rows in expected}
    assert len(lengths) >= 3, "translations of only one length would not test the length penalty"

    n_same = 0
    for hypotheses, rows in zip(actual, expected, strict=True):
        if [hypothesis.finished for hypothesis in hypotheses] == [finished for _, finished, _ in rows]:
            n_same += 1
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _, _ in rows]
            if beam > 1:
                scores = [hypothesis.normalized_score(search.length_penalty) for hypothesis in hypotheses]
                assert scores == pytest.approx([score for _, _, score in rows], abs=1e-4)
        else:  # transformers may rank a truncated hypothesis above a finished one
            truncated = next(score for _, finished, score in rows if not finished)
            assert truncated > min(
                hypothesis.normalized_score(search.length_penalty) for hypothesis in hypotheses if hypothesis.finished
            )
    assert n_same >= 0.8 * len(SOURCES)
