"""`generate` of MarianMTModel of the `transformers` package, for `benchmarks/decoding/throughput.py`."""

import sys
from pathlib import Path
from typing import Any

import torch
from decoder import BOS, EOS, PAD, Engine, run
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "training" / "engines"))
from engine import Job, Sizes
from with_transformers import build_model


class Marian(Engine):
    """Batches of sentences of like length; the cache that `generate` chooses."""

    def __init__(self, order: dict[str, Any]) -> None:
        torch.set_num_threads(order["workers"] * order["threads"])
        job = Job(
            Sizes(**order["sizes"], dropout=0.0), load_file(order["weights"]), order["precision"], compiled=False,
            plain_attention=False, checkpointed=False, label_smoothing=0.0, learning_rate=0.0, clip_norm=1.0,
            device=torch.device(order.get("device", "cpu")),
        )  # fmt: skip
        self.device, self.options = job.device, order.get("options", {})
        dtype = {"float32": torch.float32, "bf16": torch.bfloat16}[order["precision"]]
        self.model = build_model(job).eval().to(dtype)
        self.model.config.use_cache = self.model.generation_config.use_cache = True

    def prepare(self, sources: list[list[int]]) -> list[list[int]]:
        """Returns the token ids unchanged."""
        return sources

    def tokens_of(self, translated: list[list[int]]) -> list[list[int]]:
        """Returns the token ids unchanged."""
        return translated

    @torch.inference_mode()
    def translate(self, sources: list[list[int]], case: dict[str, Any]) -> list[list[int]]:
        """Implements `Engine.translate`."""
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        tokens: list[list[int]] = [[]] * len(sources)
        for start in range(0, len(order), case["batch"]):
            rows = order[start : start + case["batch"]]
            longest = max(len(sources[row]) for row in rows)
            padded = [sources[row] + [PAD] * (longest - len(sources[row])) for row in rows]
            src = torch.tensor(padded, device=self.device)
            outputs = self.model.generate(
                input_ids=src, attention_mask=(src != PAD).long(), num_beams=case["beam"], do_sample=False,
                max_new_tokens=case["limit"], min_new_tokens=case["limit"] if case["fixed"] else 1,
                length_penalty=1.0, early_stopping=True,
                decoder_start_token_id=BOS, forced_eos_token_id=None, bad_words_ids=None,
                **self.options,
            )  # fmt: skip
            for row, line in zip(rows, outputs.tolist(), strict=True):
                written = line[1:]
                tokens[row] = written[: written.index(EOS)] if EOS in written else written
        return tokens


if __name__ == "__main__":
    run(Marian, ("torch", "transformers"))
