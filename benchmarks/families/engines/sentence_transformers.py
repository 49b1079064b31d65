"""The sentence-transformers package, for `benchmarks/families/throughput.py`."""

import sys
from pathlib import Path

sys.path.pop(0)  # this folder, in which this file has the package's name
from sentence_transformers import SentenceTransformer

sys.path.insert(0, str(Path(__file__).parent))
import torch
from timed import best_of, order_given, texts


def main() -> None:
    """Embeds the sentences."""
    order = order_given()
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16}[order["precision"]]
    folder = str(Path(order["folder"]) / "minilm")
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": dtype})
    lines = texts(order)
    runs = {
        f"batch {batch}": lambda batch=batch: model.encode(lines, batch_size=batch, show_progress_bar=False).astype(
            "f4"
        )
        for batch in order["batches"]
    }
    best_of(runs, order)


if __name__ == "__main__":
    main()
