"""Time of the first translation: `transformer translate` with one sentence, compared with `python -c "import torch"`.

Without --model, the model is of base size with random weights and V 32,000, so that its translation reaches the maximum
length. It is stored in float32, which the command converts to int8, and in int8. Each round runs all cases, one after
another. "without torch" is the least that a start without PyTorch needs: it imports numpy and tokenizers, reads the
tokenizer and the weights, and opens the library of the kernels, but translates nothing.

Usage: python benchmarks/startup/cold_start.py --corpus SOURCE TARGET [--rounds 7] [--out FILE]
       python benchmarks/startup/cold_start.py --model models/en-de/transformer_model_en_de/bundle
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

import transformer
from transformer.bundle import Bundle, save_bundle, save_quantized
from transformer.kernels.library import LIBRARIES, instruction_set
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


WITHOUT_TORCH = """
import ctypes, json, sys
from pathlib import Path
import numpy, tokenizers
folder, kernels = Path(sys.argv[1]), sys.argv[2]
merges = json.loads(next(folder.glob("tokenizer*.json")).read_bytes())["merges"]
tokenizers.Tokenizer.from_str(json.dumps(merges))
weights = next(folder.glob("*.safetensors")).read_bytes()
length = int.from_bytes(weights[:8], "little")
header = json.loads(weights[8 : 8 + length])
for name, entry in header.items():
    if name != "__metadata__":
        begin, end = entry["data_offsets"]
        numpy.frombuffer(weights, numpy.uint8, end - begin, 8 + length + begin).sum()
try:
    ctypes.CDLL(kernels)
except OSError:  # without torch, its OpenMP is missing
    Path(kernels).read_bytes()
"""


def make_bundles(corpus: list[Path], folder: Path) -> tuple[dict[str, Path], int]:
    """Writes a model of base size with random weights in two precisions; returns the folders and the vocabulary."""
    sides = [read(path) for path in corpus]
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
    save_bundle(folder / "float32", bundle)
    save_quantized(folder / "int8", bundle)
    return {"float32 bundle": folder / "float32", "int8 bundle": folder / "int8"}, size


def main() -> None:
    """Makes the bundles, runs the rounds, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--model", type=Path, help="bundle to translate with, instead of random weights")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if (arguments.corpus is None) == (arguments.model is None):
        parser.error("give --corpus or --model")
    torch_alone = [sys.executable, "-c", "import torch"]
    with tempfile.TemporaryDirectory() as name:
        size = None
        if arguments.model:
            folders = {"model": arguments.model}
        else:
            folders, size = make_bundles(arguments.corpus, Path(name))
        commands = {"import torch": torch_alone} | {
            case: [sys.executable, "-m", "transformer", "translate", str(folder)] for case, folder in folders.items()
        }
        kernels = Path(transformer.__file__).parent / "kernels" / LIBRARIES[instruction_set() or "avx2"]
        last = [*folders.values()][-1]
        commands["without torch"] = [sys.executable, "-c", WITHOUT_TORCH, str(last), str(kernels)]
        figures: dict[str, list[float]] = {case: [] for case in commands}
        for _ in range(arguments.rounds):
            for case, command in commands.items():
                figures[case].append(seconds(command, f"{SENTENCE}\n"))
    over = {
        name: spread([total - alone for total, alone in zip(values, figures["import torch"], strict=True)])
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
