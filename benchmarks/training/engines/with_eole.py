"""Eole's model, loss, optimizer and training step, for `benchmarks/training/throughput.py`.

Its data loader is left out: its trainer is given the batches. Its decoder knows pre-norm alone, so the whole model is
pre-norm, and is compared with ours of that order.
"""

import warnings
from types import SimpleNamespace

warnings.filterwarnings("ignore")

import pyonmttok  # noqa: E402
import torch  # noqa: E402
from engine import (  # noqa: E402
    ADAM_BETAS,
    ADAM_EPS,
    NORM_EPS,
    PAD,
    Batch,
    Job,
    attention_names,
    copy_into,
    copy_linear,
    copy_norm,
    run,
    sinusoid,
)
from eole.config.models import TransformerModelConfig  # noqa: E402
from eole.config.training import TrainingConfig  # noqa: E402
from eole.models.model import BaseModel, get_model_class  # noqa: E402
from eole.trainer import Trainer, TrainerConfig  # noqa: E402
from eole.utils import Statistics  # noqa: E402
from eole.utils.loss import LossCompute  # noqa: E402
from eole.utils.optimizers import Optimizer  # noqa: E402
from torch import Tensor, nn  # noqa: E402

SPECIAL = {"pad_token": "<blank>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def make_vocabulary(size: int) -> dict[str, object]:
    """Names for the ids, since a model is built from a vocabulary."""
    tokens = [*SPECIAL.values(), *(f"w{index}" for index in range(4, size))]
    vocabulary = pyonmttok.build_vocab_from_tokens(tokens)
    if len(vocabulary) != size or any(vocabulary[token] != index for index, token in enumerate(SPECIAL.values())):
        raise ValueError("the vocabulary does not keep the order of its tokens")
    return {"specials": SPECIAL, "src": vocabulary, "tgt": vocabulary}


def model_config(job: Job) -> TransformerModelConfig:
    """The sizes, with the biases of our model."""
    sizes = job.sizes
    config = TransformerModelConfig(
        layers=sizes.N, hidden_size=sizes.d_model, heads=sizes.h, transformer_ff=sizes.d_ff, norm_eps=NORM_EPS,
        embeddings={"word_vec_size": sizes.d_model, "position_encoding_type": "SinusoidalInterleaved"},
        add_qkvbias=True, add_final_linear_bias=True, add_ffnbias=True, mlp_activation_fn="relu", layer_norm="standard",
        share_embeddings=True, share_decoder_embeddings=True, generator_bias=False,
    )  # fmt: skip
    config.update_model_opts()
    return config


def training_config(job: Job) -> TrainingConfig:
    """The settings that its recipe file would hold."""
    on_gpu = job.device.type == "cuda"
    return TrainingConfig(
        dropout=[job.sizes.dropout], attention_dropout=[0.0], dropout_steps=[0], label_smoothing=job.label_smoothing,
        optim="adam", adam_beta1=ADAM_BETAS[0], adam_beta2=ADAM_BETAS[1], adam_eps=ADAM_EPS, normalization="tokens",
        learning_rate=job.learning_rate, decay_method="none", max_grad_norm=job.clip_norm, accum_count=[1],
        accum_steps=[0], compute_dtype={"float32": "fp32", "bfloat16": "bf16"}[job.precision], use_amp=True,
        log_attention_entropy=False, world_size=int(on_gpu), gpu_ranks=[0] if on_gpu else [],
    )  # fmt: skip


def copy_weights(model: BaseModel, job: Job) -> None:
    """Overwrites all parameters, and leaves dropout at residual connections and embeddings alone."""
    copy_into(model.src_emb.embeddings.weight, job.embedding)
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(stack.transformer_layers):
            copy_layer(layer, job, side, index)
        copy_norm(stack.layer_norm, job, f"{side}.norm")
    for embedding in (model.src_emb, model.tgt_emb):
        copy_into(embedding.pe.pe[: job.sizes.positions, 0], sinusoid(job.sizes.positions, job.sizes.d_model))


def copy_layer(layer: nn.Module, job: Job, side: str, index: int) -> None:
    """Overwrites one layer."""
    blocks = [layer.self_attn] + ([layer.context_attn] if side == "decoder" else [])
    for block, name in zip(blocks, attention_names(side, index), strict=True):
        for theirs, ours in (
            ("linear_query", "W_q"), ("linear_keys", "W_k"), ("linear_values", "W_v"), ("final_linear", "W_o"),
        ):  # fmt: skip
            copy_linear(getattr(block, theirs), job, f"{name}.{ours}")
    norms = ["input_layernorm"] + ["precontext_layernorm"] * (side == "decoder") + ["post_attention_layernorm"]
    for number, norm in enumerate(norms):
        copy_norm(getattr(layer, norm), job, f"{side}.layers.{index}.residual_connections.{number}.norm")
    copy_linear(layer.mlp.gate_up_proj, job, f"{side}.layers.{index}.feed_forward_block.linear_1")
    copy_linear(layer.mlp.down_proj, job, f"{side}.layers.{index}.feed_forward_block.linear_2")
    layer.mlp.dropout_1.p = 0.0


class Eole:
    """A training step of Eole 0.6.4."""

    differences = (
        "pre-norm: two norms more than post-norm, at the ends of the stacks",
        "its inner feed-forward dropout, one setting with the rest, is set to 0 after it is built",
        "its Adam is that of the package torch-optimi in float32, torch's under autocast (its choice)",
        "the loss is divided by the scored tokens; its own count leaves EOS out",
        "its step counts correct tokens too, as its trainer does; its log of attention entropy is switched off",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        vocabulary = make_vocabulary(job.sizes.vocabulary)
        settings = SimpleNamespace(model=model_config(job), training=training_config(job), **SPECIAL)
        self.device_id = 0 if job.device.type == "cuda" else -1
        self.model = get_model_class(settings.model).for_training(
            settings.model, vocabulary, settings.training, device_id=self.device_id
        )
        copy_weights(self.model, job)
        forward = torch.compile(self.model, dynamic=True) if job.compiled else self.model
        optimizer = Optimizer.from_config(self.model, settings)
        loss = LossCompute.from_config(settings, self.model, vocabulary)
        config = TrainerConfig(
            norm_method="tokens", n_gpu=int(self.device_id == 0), gpu_rank=self.device_id,
            dropout=settings.training.dropout, attention_dropout=settings.training.attention_dropout,
        )  # fmt: skip
        self.trainer = Trainer(forward, loss, loss, None, {}, optimizer, config)
        self.statistics = Statistics()

    def step(self, batch: Batch) -> None:
        """One update."""
        pairs = self.pairs(batch)
        self.trainer._train_step([pairs], batch.scored, self.statistics, self.statistics, step=1)

    def pairs(self, batch: Batch) -> dict[str, object]:
        """Its own form of a batch: the target with its first and its last token."""
        rows = len(batch.src)
        target = torch.cat([batch.tgt[:, :1], batch.labels], dim=1)
        return {
            "src": batch.src, "srclen": (batch.src != PAD).sum(dim=1), "tgt": target, "images": None,
            "prefix_len": None, "cid": ["train"] * rows, "cid_line_number": list(range(rows)),
        }  # fmt: skip

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position."""
        pairs = self.pairs(batch)
        return self.model.generator(self.model(pairs["src"], pairs["tgt"], pairs["srclen"]).dec_out)


if __name__ == "__main__":
    run(Eole, ("eole",))
