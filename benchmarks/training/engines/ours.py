"""Model and training step of this project, for `benchmarks/training/throughput.py`."""

from typing import Any

import torch
from engine import ADAM_BETAS, ADAM_EPS, Batch, DropoutCounter, Job, run
from torch import Tensor

from transformer import build_transformer
from transformer.blocks import causal_mask, padding_mask
from transformer.data.batch import PairBatch
from transformer.kernels import elementwise
from transformer.runtime.allocator import retain_heap
from transformer.training.backend import Backend, enlarge_onednn_cache
from transformer.training.compilation import compile_layers
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step


class KernelCounter:
    """Counts the elements to which our kernels apply dropout; the backward pass repeats the draws by their seeds."""

    def __enter__(self) -> "KernelCounter":
        self.drawn: dict[int, int] = {}
        self.kernel, elementwise.drop_out = elementwise.drop_out, self.drop_out
        return self

    def __exit__(self, *_: object) -> None:
        elementwise.drop_out = self.kernel

    def drop_out(self, y: Tensor, levels: int, seed: int, **options: Any) -> Tensor:
        """Records the draw and calls the kernel."""
        self.drawn[seed] = y.numel()
        return self.kernel(y, levels, seed, **options)

    @property
    def elements(self) -> int:
        """Number of elements of all draws."""
        return sum(self.drawn.values())


class Ours:
    """Same training step as in `transformer train`."""

    differences: tuple[str, ...] = ()

    def __init__(self, job: Job) -> None:
        retain_heap()
        enlarge_onednn_cache()
        precision = "bf16" if job.precision == "bfloat16" else "float32"
        self.backend = Backend(torch.device(job.device), precision, is_compiled=job.compiled)
        self.dropout_counter = KernelCounter if job.device.type == "cpu" else DropoutCounter
        sizes = job.sizes
        self.job = job
        self.model = build_transformer(
            sizes.vocabulary, sizes.vocabulary, sizes.positions, sizes.positions, d_model=sizes.d_model, N=sizes.N,
            h=sizes.h, d_ff=sizes.d_ff, dropout=sizes.dropout, norm_order=sizes.norm_order, share_embeddings="all",
        ).to(job.device)  # fmt: skip
        missing, unexpected = self.model.load_state_dict(job.weights, strict=False)
        if unexpected or set(missing) != {"tgt_embed.embedding.weight", "projection_layer.proj.weight"}:
            raise ValueError(f"weights do not fit: missing {missing}, unexpected {unexpected}")
        job.weights.clear()  # before Adam's memory is made, which the peers make in their first step
        objective = TranslationObjective(self.model, job.label_smoothing, activation_checkpointing=job.checkpointed)
        if job.compiled:
            compile_layers(objective)
        optimizer = make_optimizer(objective, ADAM_BETAS, ADAM_EPS)
        self.state = TrainingState(objective, optimizer, step=0, seed=1, backend=self.backend)

    def step(self, batch: Batch) -> None:
        """One update."""
        pairs = PairBatch(batch.src, batch.tgt, batch.labels, batch.scored)
        train_step(self.state, [pairs], self.job.learning_rate, self.job.clip_norm)

    def logits(self, batch: Batch) -> Tensor:
        """Logits of every target position."""
        masks = padding_mask(batch.src), causal_mask(batch.tgt.size(1), batch.src.device)
        with self.backend.compute_context():
            return self.model(batch.src, batch.tgt, *masks)


if __name__ == "__main__":
    run(Ours)
