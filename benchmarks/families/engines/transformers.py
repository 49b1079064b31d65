"""The transformers package, for `benchmarks/families/throughput.py`: each job as its documentation does it."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, in which this file has the package's name
import transformers

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from timed import WARM_UP_STEPS, best_of, examples, images, order_given, prompts, texts


def main() -> None:
    """Does the job of the order."""
    order = order_given()
    folder, job = Path(order["folder"]), order["job"]
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16}[order["precision"]]
    if job == "embed":
        best_of(embeddings(order, folder / "minilm", dtype), order)
    elif job == "generate":
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / order["model"], dtype=dtype).eval()
        model_inputs = prompts(order)

        def generate(cache: str) -> np.ndarray:
            with torch.no_grad():
                outputs = model.generate(
                    model_inputs, attention_mask=torch.ones_like(model_inputs), do_sample=False,
                    max_new_tokens=order["written"], min_new_tokens=order["written"],
                    eos_token_id=None, pad_token_id=0, use_cache=True,
                    cache_implementation=cache,
                )  # fmt: skip
            return outputs[:, model_inputs.size(1) :].numpy()

        def generate_compiled() -> np.ndarray:
            plain, model.forward = model.forward, compiled
            outputs = generate("static")
            model.forward = plain
            return outputs

        compiled = torch.compile(model.forward, dynamic=False)
        ways = {cache: partial(generate, cache) for cache in ("dynamic", "static")}
        best_of({**ways, "static, compiled": generate_compiled}, order)
    elif job == "images":
        model = transformers.AutoModelForImageClassification.from_pretrained(folder / "vit", dtype=dtype).eval()
        pixels = images(order).to(dtype)

        def classify() -> np.ndarray:
            with torch.inference_mode():
                return model(pixel_values=pixels).logits.float().numpy()

        compiled = torch.compile(model)

        def classify_compiled() -> np.ndarray:
            with torch.inference_mode():
                return compiled(pixel_values=pixels).logits.float().numpy()

        best_of({"sdpa": classify, "compiled": classify_compiled}, order)
    else:
        ways = {"fused Adam": False, "fused Adam, compiled": True}
        best_of({name: step(order, folder, compiled) for name, compiled in ways.items()}, order, WARM_UP_STEPS)


def embeddings(order: dict[str, Any], folder: Path, dtype: torch.dtype) -> dict[Any, Any]:
    """Mean pooling over batches of sentences of like length."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = texts(order)

    def embed(batch: int, encoder: Any) -> np.ndarray:
        rows = sorted(range(len(lines)), key=lambda row: -len(lines[row]))
        outputs = np.zeros((len(lines), model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for start in range(0, len(rows), batch):
                batch_rows = rows[start : start + batch]
                model_inputs = tokenizer(
                    [lines[row] for row in batch_rows],
                    padding=True,
                    truncation=True,
                    max_length=512,
                    return_tensors="pt",
                )
                hidden = encoder(**model_inputs).last_hidden_state.float()
                mask = model_inputs["attention_mask"][:, :, None]
                mean = (hidden * mask).sum(1) / mask.sum(1)
                outputs[batch_rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return outputs

    kinds = {"": model, ", compiled": torch.compile(model, dynamic=True)}
    return {
        f"batch {batch}{kind}": partial(embed, batch, encoder)
        for batch in order["batches"]
        for kind, encoder in kinds.items()
    }


def step(order: dict[str, Any], folder: Path, compiled: bool) -> Any:
    """A training step without dropout; its losses."""
    kinds = {
        "minilm": transformers.BertForSequenceClassification, "gpt2": transformers.GPT2LMHeadModel,
        "vit": transformers.ViTForImageClassification,
    }  # fmt: skip
    model = kinds[order["model"]].from_pretrained(folder / order["model"]).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for name in ("attention_probs_dropout_prob", "attn_pdrop", "resid_pdrop", "hidden_dropout_prob"):
        if hasattr(model.config, name):
            setattr(model.config, name, 0.0)
    for module in model.modules():
        for name in ("dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    if order["model"] == "minilm":
        torch.nn.init.zeros_(model.classifier.weight)
        torch.nn.init.zeros_(model.classifier.bias)
    inputs, labels = examples(order)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    forward = torch.compile(model, dynamic=False) if compiled else model
    losses: list[float] = []
    bf16 = torch.autocast("cpu", torch.bfloat16, enabled=order["precision"] == "bf16")

    def one() -> np.ndarray:
        with bf16:
            if order["model"] == "gpt2":
                logits = forward(inputs[:, :-1]).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), inputs[:, 1:].flatten())
            elif order["model"] == "vit":
                loss = torch.nn.functional.cross_entropy(forward(pixel_values=inputs).logits.float(), labels)
            else:
                mask = torch.ones_like(inputs)
                loss = torch.nn.functional.cross_entropy(forward(inputs, attention_mask=mask).logits.float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        return np.array(losses[:2])

    return one


if __name__ == "__main__":
    main()
