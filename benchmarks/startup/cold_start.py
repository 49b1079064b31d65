"""Time of the first translation: `transformer translate` with one sentence, compared with `python -c "import torch"`.

The model is of base size with random weights and V 32,000, so that its translation reaches the maximum length. It is
stored in float32, which the command converts to int8, and in int8. Each round runs all three, one after another.

Usage: python benchmarks/startup/cold_start.py --corpus SOURCE TARGET [--rounds 7] [--out FILE]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from transformer.bundle import Bundle, save_bundle, save_quantized
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
sys.path.insert(1, str(Path(__file__).parents[1] / "decoding"))
from report import command_line, hardware, spread
from throughput import BASE, read

SENTENCE = "A man in a blue shirt is standing on a ladder."


def seconds(command: list[str], text: str) -> float:
    """Returns the seconds of a process from start to end."""
    started = time.perf_counter()
    subprocess.run(command, input=text.encode(), capture_output=True, check=True, env=os.environ)
    return time.perf_counter() - started


def main() -> None:
    """Makes the bundles, runs the rounds, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sides = [read(path) for path in arguments.corpus]
    settings = TokenizerConfig(vocab_size=BASE["vocabulary"], joint=True, min_frequency=1)
    tokenizers = TokenizerPair.train(lambda: sides[0], lambda: sides[1], settings)
    kind = family("transformer")
    size = tokenizers.source.vocab_size
    config = kind.config.model_validate(
        {name: BASE[name] for name in ("N", "d_model", "d_ff", "h")}
        | {"src_vocab_size": size, "tgt_vocab_size": size, "src_seq_len": 128, "tgt_seq_len": 128}
        | {"norm_order": "post", "share_embeddings": "all"}
    )
    torch.manual_seed(1)
    bundle = Bundle(config, kind.build(config), tokenizers, {"max_source_tokens": 128})
    figures: dict[str, list[float]] = {"import torch": [], "float32 bundle": [], "int8 bundle": []}
    with tempfile.TemporaryDirectory() as name:
        save_bundle(Path(name) / "float32", bundle)
        save_quantized(Path(name) / "int8", bundle)
        for _ in range(arguments.rounds):
            figures["import torch"].append(seconds([sys.executable, "-c", "import torch"], ""))
            for precision in ("float32", "int8"):
                command = [sys.executable, "-m", "transformer", "translate", str(Path(name) / precision)]
                figures[f"{precision} bundle"].append(seconds(command, f"{SENTENCE}\n"))
    over = {
        name: spread([total - torch_alone for total, torch_alone in zip(values, figures["import torch"], strict=True)])
        for name, values in figures.items()
        if name != "import torch"
    }
    result = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "vocabulary": size, "seconds": {name: spread(values) for name, values in figures.items()},
        "seconds_over_import_torch": over,
    }  # fmt: skip
    print(json.dumps({"seconds": result["seconds"], "over import torch": over}, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
