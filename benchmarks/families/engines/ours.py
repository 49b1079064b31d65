"""Engine of this package, for `benchmarks/families/throughput.py`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from timed import WARM_UP_STEPS, best_of, examples, images, order_given, prompts, texts

from transformer.bundle import Bundle
from transformer.bundle.huggingface import read_tensors
from transformer.data.batch import ImageBatch, TextBatch, WindowBatch
from transformer.decoding import Request, Search, search_all
from transformer.inference.cpu import pack
from transformer.models import family
from transformer.pipelines.auto import load
from transformer.tokenizers.special_tokens import SpecialTokenIds
from transformer.training.backend import Backend, enlarge_onednn_cache
from transformer.training.objectives.classification import ClassificationObjective
from transformer.training.objectives.language_modelling import LanguageModelObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step

NOBODY = SpecialTokenIds(None, None, None, None)


def read_model(folder: Path, **changed: Any) -> Bundle:
    """A published model without its tokenizer."""
    import json

    published = json.loads((folder / "config.json").read_text())
    kind = family({"gpt2": "gpt"}.get(published["model_type"], published["model_type"]))
    tensors, form = read_tensors(folder), kind.weights()
    config = form.read_config(kind.config, published, {}, tensors.keys())
    state = form.read_weights(config, tensors)
    config = config.model_copy(update=changed)
    model = kind.build(config)
    model.load_state_dict(state, strict=False)
    return Bundle(config, model.eval(), None)


def main() -> None:
    """Does the job of the order."""
    order = order_given()
    enlarge_onednn_cache()
    folder, precision, job = Path(order["folder"]), order["precision"], order["job"]
    if job == "embed":
        encoder, lines = load(folder / "minilm", precision=precision), texts(order)
        best_of({"default": lambda: encoder.embed(lines)}, order)
    elif job == "generate":
        model = pack(read_model(folder / order["model"]).model, precision)
        rows = prompts(order).tolist()
        requests = [Request(row[:-1], order["written"], decoder_start_token_id=row[-1]) for row in rows]

        def generate() -> np.ndarray:
            results = search_all(model, requests, Search(), special_tokens=NOBODY)
            return np.array([best.tokens for best, *_ in results])

        best_of({"default": generate}, order)
    elif job == "images":
        model, pixels = pack(read_model(folder / "vit").model, precision), images(order)

        def classify() -> np.ndarray:
            with torch.inference_mode():
                return model.label_logits(pixels).float().numpy()

        best_of({"default": classify}, order)
    else:
        best_of({"default": step(order, folder)}, order, WARM_UP_STEPS)


def step(order: dict[str, Any], folder: Path) -> Any:
    """A training step without dropout; its losses."""
    state, batch = training(order, folder)
    losses: list[float] = []

    def one() -> np.ndarray:
        result = train_step(state, [batch], 1e-5, 1.0)
        assert result is not None
        losses.append(result.loss)
        return np.array(losses[:2])

    return one


def training(order: dict[str, Any], folder: Path) -> tuple[TrainingState, Any]:
    """A model to be trained without dropout, and a batch."""
    none = {"dropout": 0.0, "attention_dropout": 0.0}
    extra = {"minilm": {"labels": ("a", "b"), "head_dropout": 0.0}, "gpt2": {"embedding_dropout": 0.0}}
    model = read_model(folder / order["model"], **none, **extra.get(order["model"], {})).model
    if order["model"] == "minilm":
        torch.nn.init.zeros_(model.label_head[1].weight)
        torch.nn.init.zeros_(model.label_head[1].bias)
    inputs, labels = examples(order)
    if order["model"] == "gpt2":
        objective, batch = LanguageModelObjective(model, 0.0), WindowBatch(inputs, inputs[:, 1:].numel())
    elif order["model"] == "vit":
        objective, batch = ClassificationObjective(model, 0.0), ImageBatch(inputs, labels)
    else:
        mask = torch.ones(len(inputs), 1, 1, inputs.size(1), dtype=torch.bool)
        objective, batch = ClassificationObjective(model, 0.0), TextBatch(inputs, mask, labels)
    backend = Backend(torch.device("cpu"), order["precision"])
    return TrainingState(objective, make_optimizer(objective, (0.9, 0.999), 1e-8), 0, 1, backend), batch


if __name__ == "__main__":
    main()
