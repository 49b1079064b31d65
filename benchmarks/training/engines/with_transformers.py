"""MarianMTModel of the `transformers` package, for `benchmarks/training/throughput.py`."""

import torch
from engine import (
    EOS,
    PAD,
    Batch,
    Job,
    attention_names,
    copy_into,
    copy_linear,
    copy_norm,
    fused_adam,
    run,
    sinusoid,
    smoothed_loss,
)
from torch import Tensor
from transformers import MarianConfig, MarianMTModel


def build_model(job: Job) -> MarianMTModel:
    """The model of the job's sizes."""
    sizes = job.sizes
    config = MarianConfig(
        vocab_size=sizes.vocabulary, max_position_embeddings=sizes.positions, encoder_layers=sizes.N,
        decoder_layers=sizes.N, encoder_attention_heads=sizes.h, decoder_attention_heads=sizes.h,
        encoder_ffn_dim=sizes.d_ff, decoder_ffn_dim=sizes.d_ff, d_model=sizes.d_model, dropout=sizes.dropout,
        attention_dropout=0.0, activation_dropout=0.0, activation_function="relu", scale_embedding=True,
        pad_token_id=PAD, eos_token_id=EOS, forced_eos_token_id=EOS, decoder_start_token_id=PAD,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True, use_cache=False,
        attn_implementation="eager" if job.plain_attention else "sdpa",
    )  # fmt: skip
    model = MarianMTModel(config)
    copy_into(model.model.shared.weight, job.embedding)
    positions = sinusoid(sizes.positions, sizes.d_model)
    for side, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder)):
        copy_into(stack.embed_positions.weight, positions)
        for index, layer in enumerate(stack.layers):
            copy_layer(layer, job, side, index)
    return model.to(job.device)


def copy_layer(layer: torch.nn.Module, job: Job, side: str, index: int) -> None:
    """Overwrites one layer with the job's weights."""
    blocks = [layer.self_attn] + ([layer.encoder_attn] if side == "decoder" else [])
    for block, name in zip(blocks, attention_names(side, index), strict=True):
        for theirs, ours in (("q_proj", "W_q"), ("k_proj", "W_k"), ("v_proj", "W_v"), ("out_proj", "W_o")):
            copy_linear(getattr(block, theirs), job, f"{name}.{ours}")
    norms = ["self_attn_layer_norm"] + ["encoder_attn_layer_norm"] * (side == "decoder") + ["final_layer_norm"]
    for number, norm in enumerate(norms):
        copy_norm(getattr(layer, norm), job, f"{side}.layers.{index}.residual_connections.{number}.norm")
    for theirs, ours in (("fc1", "linear_1"), ("fc2", "linear_2")):
        copy_linear(getattr(layer, theirs), job, f"{side}.layers.{index}.feed_forward_block.{ours}")


class Marian:
    """A plain loop over the model: labels shifted beforehand, cross-entropy on its logits, fused Adam."""

    differences = (
        "its table of positions is overwritten by the interleaved one, its norms' epsilon 1e-5 by 1e-6",
        "label smoothing by torch's cross_entropy on its logits, since its own loss has none",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = build_model(job)
        self.optimizer = fused_adam(self.model, job)
        self.parameters = list(self.model.parameters())
        self.forward = torch.compile(self.model, dynamic=True) if job.compiled else self.model

    def step(self, batch: Batch) -> None:
        """One update."""
        with self.job.autocast():
            loss = smoothed_loss(self.logits(batch), batch, self.job)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.job.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position."""
        return self.forward(
            input_ids=batch.src, attention_mask=batch.src != PAD, decoder_input_ids=batch.tgt, use_cache=False
        ).logits


if __name__ == "__main__":
    run(Marian, ("transformers",))
