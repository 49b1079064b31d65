"""JoeyNMT's model, loss and optimizer, for `benchmarks/training/throughput.py`.

Its trainer is left out with its data loader and its sorting; a step is that of its `TrainManager._train_step`. Its own
settings know no bf16 (`fp16` is switched off on a CPU, and float16 on a GPU); here it may have it all the same.
"""

from types import SimpleNamespace

import torch
from engine import (
    ADAM_BETAS,
    ADAM_EPS,
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Job,
    attention_names,
    copy_into,
    copy_linear,
    copy_norm,
    run,
    sinusoid,
)
from joeynmt.batch import Batch as JoeyBatch
from joeynmt.builders import build_gradient_clipper, build_optimizer
from joeynmt.model import Model, build_model
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn


def make_vocabulary(size: int) -> Vocabulary:
    """Names for the ids, since a model is built from a vocabulary."""
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
    )  # fmt: skip
    vocabulary = Vocabulary([], special)
    # Its `add_tokens` searches a list for each token, which takes minutes for 32,000.
    tokens = ["<pad>", "<s>", "</s>", "<unk>"] + [f"w{index}" for index in range(4, size)]
    vocabulary._itos, vocabulary._stoi = tokens, {token: index for index, token in enumerate(tokens)}
    vocabulary.pad_index, vocabulary.bos_index, vocabulary.eos_index, vocabulary.unk_index = PAD, BOS, EOS, UNK
    return vocabulary


def make_model(job: Job) -> Model:
    """The model of the job's sizes, with dropout at residual connections and embeddings alone."""
    sizes = job.sizes
    side = {
        "type": "transformer", "num_layers": sizes.N, "num_heads": sizes.h, "hidden_size": sizes.d_model,
        "ff_size": sizes.d_ff, "dropout": sizes.dropout, "layer_norm": sizes.norm_order, "activation": "relu",
        "embeddings": {"embedding_dim": sizes.d_model, "scale": True, "dropout": sizes.dropout},
    }  # fmt: skip
    vocabulary = make_vocabulary(sizes.vocabulary)
    config = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
    model = build_model(config, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", job.label_smoothing)
    copy_into(model.src_embed.lut.weight, job.embedding)
    positions = sinusoid(sizes.positions, sizes.d_model)
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        copy_into(stack.pe.pe[0, : sizes.positions], positions)
        for index, layer in enumerate(stack.layers):
            copy_layer(layer, job, name, index)
        if stack.layer_norm is not None:
            copy_norm(stack.layer_norm, job, f"{name}.norm")
    return model.to(job.device)


def copy_layer(layer: nn.Module, job: Job, side: str, index: int) -> None:
    """Overwrites one layer with the job's weights and leaves dropout at the residual connections alone."""
    if side == "encoder":
        blocks, norms = [layer.src_src_att], [layer.layer_norm]
    else:
        blocks, norms = [layer.trg_trg_att, layer.src_trg_att], [layer.x_layer_norm, layer.dec_layer_norm]
    for block, name in zip(blocks, attention_names(side, index), strict=True):
        for theirs, ours in (("q_layer", "W_q"), ("k_layer", "W_k"), ("v_layer", "W_v"), ("output_layer", "W_o")):
            copy_linear(getattr(block, theirs), job, f"{name}.{ours}")
        block.dropout.p = 0.0
    for number, norm in enumerate([*norms, layer.feed_forward.layer_norm]):
        copy_norm(norm, job, f"{side}.layers.{index}.residual_connections.{number}.norm")
    inner, _, inner_dropout, outer, _ = layer.feed_forward.pwff_layer
    copy_linear(inner, job, f"{side}.layers.{index}.feed_forward_block.linear_1")
    copy_linear(outer, job, f"{side}.layers.{index}.feed_forward_block.linear_2")
    inner_dropout.p = 0.0


class JoeyNMT:
    """A training step of JoeyNMT 2.3.0."""

    differences = (
        "its smoothing spreads epsilon over V - 2 tokens other than the label and padding (epsilon / V at the others)",
        "its Adam is not fused (no setting); epsilon 1e-8 is overwritten by 1e-9",
        "its attention and inner feed-forward dropout, one setting with the rest, are set to 0 after it is built",
        "bf16, where measured, is given to it from outside: it has no such setting",
        "its step counts correct tokens too, as its trainer does",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = make_model(job)
        settings = {"optimizer": "adam", "adam_betas": ADAM_BETAS, "learning_rate": job.learning_rate}
        self.optimizer = build_optimizer(settings, self.model.parameters())
        for group in self.optimizer.param_groups:
            group["eps"] = ADAM_EPS
        self.clip = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": job.clip_norm})

    def step(self, batch: Batch) -> None:
        """One update."""
        pairs = self.pairs(batch)
        with self.job.autocast():
            loss, _, _, correct = self.model(return_type="loss", **vars(pairs))
        loss = pairs.normalize(loss, normalization="tokens")
        loss.backward()
        loss.item(), correct.item()
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def pairs(self, batch: Batch) -> JoeyBatch:
        """Its own form of a batch: the target with its first and its last token."""
        target = torch.cat([batch.tgt[:, :1], batch.labels], dim=1)
        lengths, indices = (batch.src != PAD).sum(dim=1), torch.arange(len(batch.src))
        return JoeyBatch(batch.src, lengths, None, target, None, indices, self.job.device, PAD, EOS)

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position."""
        return self.model._encode_decode(**vars(self.pairs(batch)))[0]


if __name__ == "__main__":
    run(JoeyNMT, ("joeynmt",))
