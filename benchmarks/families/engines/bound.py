"""Lower bound of a training step of `benchmarks/families/throughput.py`: torch's products and Adam."""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from timed import REPEATS, VOCABULARY, WARM_UP_STEPS, order_given

sys.path.append(str(Path(__file__).parents[2] / "training"))
from product_rates import Product, weighted_rate

BF16 = torch.bfloat16
IMAGE_POSITIONS = 197


def products(order: dict[str, Any], config: dict[str, Any]) -> list[Product]:
    """Returns the products of one step: those of the layers and of the projection, without patches and small heads.

    Labels read one position, for which the last layer needs nothing but its keys and values.
    """
    width, layers = config.get("n_embd") or config["hidden_size"], config.get("n_layer") or config["num_hidden_layers"]
    inner, h = config.get("intermediate_size", 4 * width), config.get("n_head") or config["num_attention_heads"]
    length = order.get("length", IMAGE_POSITIONS)
    rows, heads = order["rows"] * length, order["rows"] * h
    linear = 4 * layers
    if order["model"] != "gpt2":
        layers, linear = layers - 1, linear - 2
    matrix_products = [
        Product("attention, linear", linear, 1, rows, width, width),
        Product("feed-forward, in", layers, 1, rows, width, inner),
        Product("feed-forward, out", layers, 1, rows, inner, width),
        Product("attention, scores", layers, heads, length, width // h, length),
        Product("attention, values", layers, heads, length, length, width // h),
    ]
    if order["model"] == "gpt2":
        matrix_products.append(Product("projection", 1, 1, rows, width, VOCABULARY["gpt2"]))
    return matrix_products


def adam_seconds(folder: Path) -> float:
    """Returns the seconds of torch's fused Adam on parameters like the model's: 28 bytes per parameter are moved."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes if shape]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, lr=1e-5, fused=True)
    seconds = []
    for _ in range(WARM_UP_STEPS + REPEATS):
        started = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return median(seconds[WARM_UP_STEPS:])


def main() -> None:
    """Prints the seconds of both."""
    order = order_given()
    folder = Path(order["folder"]) / order["model"]
    config = json.loads((folder / "config.json").read_text())
    rated = weighted_rate(products(order, config), BF16, torch.device("cpu"))
    print(json.dumps({"products": rated["seconds"], "adam": adam_seconds(folder), "rate": rated["rate"]}))


if __name__ == "__main__":
    main()
