"""Random models of transformers beside the same models here, for `benchmarks/gpu/inference.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer.bundle.huggingface import read_tensors
from transformer.decoding import Request, Search, search_all
from transformer.models import family
from transformer.tokenizers.special_tokens import SpecialTokenIds

NOBODY = SpecialTokenIds(None, None, None, None)
"""No token ends a text or is left out."""
Run = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model and its inputs.

    Attributes:
        kind: "embed", "generate" or "classify".
        name: Name of the model's class in transformers, without its task.
        config: Its configuration.
        rows: Number of texts or images.
        length: Tokens of a text or of a prompt; the size of an image.
        written: Tokens of a continuation.
    """

    kind: str
    name: str
    config: dict[str, Any]
    rows: int
    length: int
    written: int = 0

    @property
    def least_agreement(self) -> float:
        """Least cosine of vectors; any share of tokens, because a random model's tokens lie close together."""
        return 0.99 if self.kind != "generate" else 0.0

    def agreement(self, ours: np.ndarray, theirs: np.ndarray) -> float:
        """Returns the least cosine of two rows, or the share of texts with the same tokens."""
        if self.kind == "generate":
            return float((ours == theirs).all(axis=1).mean())
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        return float(((ours * theirs).sum(axis=1) / norms).min())


BERT = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
VIT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TINY_GPT = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES: dict[bool, dict[str, Case]] = {
    False: {
        "vectors, MiniLM's size, 1,024 texts of 32 tokens": Case("embed", "Bert", BERT, 1024, 32),
        "continuations, GPT-2 small, 1 text": Case("generate", "GPT2", {}, 1, 32, 64),
        "continuations, GPT-2 small, 32 texts": Case("generate", "GPT2", {}, 32, 32, 64),
        "labels, ViT-B/16, 256 images": Case("classify", "ViT", VIT | {"num_labels": 1000}, 256, 224),
    },
    True: {
        "vectors": Case("embed", "Bert", SMALL | {"vocab_size": 99}, 4, 5),
        "continuations": Case("generate", "GPT2", TINY_GPT, 2, 4, 3),
        "labels": Case("classify", "ViT", SMALL | {"image_size": 32, "patch_size": 16, "num_labels": 5}, 2, 32),
    },
}
"""What is measured in small, and on a GPU."""


def published_model(case: Case, folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[Run, Run]:
    """Returns functions that compute a case with our model and with that of transformers that it was read from."""
    import transformers

    suffix = {"embed": "Model", "generate": "LMHeadModel", "classify": "ForImageClassification"}[case.kind]
    torch.manual_seed(1)
    config = getattr(transformers, f"{case.name}Config")(**case.config)
    theirs = getattr(transformers, f"{case.name}{suffix}")(config).eval()
    theirs.save_pretrained(folder)
    ours = _read(folder).to(device, dtype).eval()
    draw = torch.Generator().manual_seed(2)
    if case.kind == "classify":
        inputs = torch.randn(case.rows, 3, case.length, case.length, generator=draw).to(device, dtype)
    else:
        highest = min(30_000, int(config.vocab_size))
        inputs = torch.randint(5, highest, (case.rows, case.length), generator=draw).to(device)
    compute = {"embed": _embed, "generate": _generate, "classify": _classify}[case.kind]
    return compute(ours, theirs.to(device, dtype), inputs, case)


def _read(folder: Path) -> Any:
    """Reads a published model without its tokenizer."""
    import json

    published = json.loads((folder / "config.json").read_text())
    kind = family({"gpt2": "gpt"}.get(published["model_type"], published["model_type"]))
    tensors, weights = read_tensors(folder), kind.weights()
    config = weights.read_config(kind.config, published, {}, tensors.keys())
    model = kind.build(config)
    model.load_state_dict(weights.read_weights(config, tensors), strict=False)
    return model


def _embed(ours: Any, theirs: Any, tokens: torch.Tensor, case: Case) -> tuple[Run, Run]:
    del case
    mask = torch.ones(len(tokens), 1, 1, tokens.size(1), dtype=torch.bool, device=tokens.device)
    attention_mask = torch.ones_like(tokens)

    def by_ours() -> np.ndarray:
        with torch.inference_mode():
            return ours.encode(tokens, mask).float().mean(1).cpu().numpy()

    def by_theirs() -> np.ndarray:
        with torch.inference_mode():
            hidden = theirs(tokens, attention_mask=attention_mask).last_hidden_state
            return hidden.float().mean(1).cpu().numpy()

    return by_ours, by_theirs


def _generate(ours: Any, theirs: Any, tokens: torch.Tensor, case: Case) -> tuple[Run, Run]:
    requests = [Request(row[:-1], case.written, decoder_start_token_id=row[-1]) for row in tokens.tolist()]

    def by_ours() -> np.ndarray:
        results = search_all(ours, requests, Search(), device=tokens.device, special_tokens=NOBODY)
        return np.array([best.tokens for best, *_ in results])

    def by_theirs() -> np.ndarray:
        with torch.no_grad():
            outputs = theirs.generate(
                tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=case.written,
                min_new_tokens=case.written, eos_token_id=None, pad_token_id=0, use_cache=True,
            )  # fmt: skip
        return outputs[:, tokens.size(1) :].cpu().numpy()

    return by_ours, by_theirs


def _classify(ours: Any, theirs: Any, images: torch.Tensor, case: Case) -> tuple[Run, Run]:
    del case

    def by_ours() -> np.ndarray:
        with torch.inference_mode():
            return ours.label_logits(images).float().cpu().numpy()

    def by_theirs() -> np.ndarray:
        with torch.inference_mode():
            return theirs(pixel_values=images).logits.float().cpu().numpy()

    return by_ours, by_theirs
