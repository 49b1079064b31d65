"""A plain loop over `torch.nn.Transformer`, for `benchmarks/training/throughput.py`."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from engine import (
    NORM_EPS,
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
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Model(nn.Module):
    """Embedding, positions and projection, which `nn.Transformer` leaves to its user, around it."""

    positions: Tensor
    causal: Tensor

    def __init__(self, job: Job) -> None:
        super().__init__()
        sizes = job.sizes
        options = {"layer_norm_eps": NORM_EPS, "batch_first": True, "norm_first": sizes.norm_order == "pre"}
        widths = (sizes.d_model, sizes.h, sizes.d_ff, sizes.dropout)
        encoder_layer = nn.TransformerEncoderLayer(*widths, **options)
        decoder_layer = nn.TransformerDecoderLayer(*widths, **options)
        final = [nn.LayerNorm(sizes.d_model, NORM_EPS) if options["norm_first"] else None for _ in range(2)]
        encoder = nn.TransformerEncoder(encoder_layer, sizes.N, final[0], enable_nested_tensor=False)
        decoder = nn.TransformerDecoder(decoder_layer, sizes.N, final[1])
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.d_model)
        self.dropout = nn.Dropout(sizes.dropout)
        self.transformer = nn.Transformer(
            sizes.d_model, sizes.h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        )
        self.register_buffer("positions", sinusoid(sizes.positions, sizes.d_model), persistent=False)
        causal = torch.ones(sizes.positions, sizes.positions, dtype=torch.bool).triu(1)  # True is masked
        self.register_buffer("causal", causal, persistent=False)
        self.scale = math.sqrt(sizes.d_model)

    def embed(self, tokens: Tensor) -> Tensor:
        """Scaled embedding plus position, with dropout."""
        return self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)])

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits of every target position."""
        padding = src == PAD
        hidden = self.transformer(
            self.embed(src), self.embed(tgt), tgt_mask=self.causal[: tgt.size(1), : tgt.size(1)], tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return nn.functional.linear(hidden, self.embedding.weight)


def copy_layer(layer: nn.Module, job: Job, side: str, index: int) -> None:
    """Overwrites one layer with the job's weights and leaves dropout at the residual connections alone."""
    blocks = [layer.self_attn] + ([layer.multihead_attn] if side == "decoder" else [])
    for block, name in zip(blocks, attention_names(side, index), strict=True):
        for part in ("weight", "bias"):
            packed = torch.cat([job.weight(f"{name}.{w}.{part}") for w in ("W_q", "W_k", "W_v")])
            copy_into(getattr(block, f"in_proj_{part}"), packed)
        copy_linear(block.out_proj, job, f"{name}.W_o")
        block.dropout = 0.0
    for number in range(len(blocks) + 1):
        norm = getattr(layer, f"norm{number + 1}")
        copy_norm(norm, job, f"{side}.layers.{index}.residual_connections.{number}.norm")
    for linear, ours in ((layer.linear1, "linear_1"), (layer.linear2, "linear_2")):
        copy_linear(linear, job, f"{side}.layers.{index}.feed_forward_block.{ours}")
    layer.dropout.p = 0.0


class TorchNN:
    """The loop of a tutorial at its best: no padded target mask, cross-entropy with smoothing, fused Adam."""

    differences = ("its attention and inner feed-forward dropout are set to 0 after it is built",)

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = Model(job)
        copy_into(self.model.embedding.weight, job.embedding)
        for side, stack in (("encoder", self.model.transformer.encoder), ("decoder", self.model.transformer.decoder)):
            for index, layer in enumerate(stack.layers):
                copy_layer(layer, job, side, index)
            if stack.norm is not None:
                copy_norm(stack.norm, job, f"{side}.norm")
        self.model.to(job.device)
        self.optimizer = fused_adam(self.model, job)
        self.parameters = list(self.model.parameters())
        self.forward = torch.compile(self.model, dynamic=True) if job.compiled else self.model

    def step(self, batch: Batch) -> None:
        """One update."""
        with self.job.autocast(), self.attention():
            loss = smoothed_loss(self.logits(batch), batch, self.job)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.job.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def attention(self) -> AbstractContextManager[Any]:
        """Selects the attention implementation of torch."""
        return sdpa_kernel(SDPBackend.MATH) if self.job.plain_attention else nullcontext()

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position."""
        return self.forward(batch.src, batch.tgt)


if __name__ == "__main__":
    run(TorchNN)
