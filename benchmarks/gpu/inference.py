"""Decoding, the other families and `transformer serve` on a GPU: `make gpu-4`.

Measures, in this order, and skips what the file of results has:
- decoding with the paper's base and big beside transformers, by `benchmarks/decoding/throughput_gpu.py`;
- vectors by a BERT in MiniLM's size, continuations by GPT-2 small and labels of images by ViT-B/16, with random weights
  in bf16, beside transformers with the same weights, in turn;
- `transformer serve` with a base model of random weights, which answers single sentences of several clients at once.

Usage: python benchmarks/gpu/inference.py [--out FOLDER] [--minutes 7] [--again]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ledger import ROOT, Arguments, Ledger, has_package, in_turn, ratios, read_arguments
from published import FAMILIES, Case, published_model
from whole_run import environment

from transformer.bundle import Bundle, save_bundle
from transformer.bundle.languages import language_entries
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

REPEATS, CLIENTS, REQUESTS = 7, 32, 640
SENTENCE_WORDS = 12


def decode(arguments: Arguments, size: str) -> dict[str, Any]:
    """Returns the figures of `throughput_gpu.py` for a size.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "decoding.json"
        options = ["--batches", "1,2", "--rounds", "1"] if arguments.in_small else ["--batches", "1,64,256", "--static"]
        program = ROOT / "benchmarks" / "decoding" / "throughput_gpu.py"
        command = [sys.executable, str(program), "--device", arguments.device.type, "--sizes", size, "--out", str(out)]
        result = subprocess.run([*command, *options], env=environment(), capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError((result.stdout + result.stderr)[-1500:])
        figures = json.loads(out.read_text())[size]
    over = [point["ours_over"]["transformers"]["median"] for point in figures["points"].values()]
    return figures | {
        "least": min(over),
        "most": max(over),
        "agreement": min(figures["same_lines_in_float32"].values()),
    }


def infer(case: Case, arguments: Arguments) -> dict[str, Any]:
    """Returns the times of a family's inference beside transformers, with the same weights.

    Raises:
        ValueError: The results differ by more than rounding.
    """
    dtype = torch.bfloat16 if arguments.device.type == "cuda" else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = published_model(case, Path(folder), arguments.device, dtype)
    results: dict[str, np.ndarray] = {}

    def keep(name: str, run: Callable[[], np.ndarray]) -> None:
        results[name] = run()

    runs = {name: partial(keep, name, run) for name, run in (("ours", ours), ("transformers", theirs))}
    seconds = in_turn(runs, arguments.device, 2 if arguments.in_small else REPEATS)
    agreement = case.agreement(results["ours"], results["transformers"])
    if agreement < case.least_agreement:
        raise ValueError(f"results agree to {agreement:.4f} alone, less than {case.least_agreement}")
    return {
        "per_second": case.rows / statistics.median(seconds["ours"]), "agreement": agreement,
        "ours_over_transformers": ratios(seconds, "ours", "transformers"), "seconds": seconds,
    }  # fmt: skip


def serve(arguments: Arguments) -> dict[str, Any]:
    """Returns requests a second and latencies of `transformer serve`."""
    n_requests = 8 if arguments.in_small else REQUESTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = random_model(folder / "model", arguments)
        lines = [" ".join(words[(7 * i + j) % len(words)] for j in range(SENTENCE_WORDS)) for i in range(n_requests)]
        config = folder / "serve.toml"
        config.write_text(
            f'port = 0\nlog = "none"\npreload = true\ndevice = "{arguments.device.type}"\n'
            f'[limits]\nconcurrent = 0\nper_minute = 0\n[models]\nen-de = "{folder / "model"}"\n'
        )
        command = [sys.executable, "-m", "transformer", "serve", "--config", str(config)]
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True) as process,
        ):
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1:]
            if not address:
                raise RuntimeError((folder / "log").read_text()[-1500:])
            try:
                return _load(address[0], lines)
            finally:
                process.terminate()


def _load(address: str, lines: list[str]) -> dict[str, Any]:
    """Sends the lines, each of `CLIENTS` clients the next one as soon as it has an answer."""

    def ask(line: str) -> float:
        body = json.dumps({"q": line, "source": "en", "target": "de"}).encode()
        request = urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"})
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as response:
            json.loads(response.read())["translatedText"]
        return time.perf_counter() - begun

    for line in lines[:4]:  # warms up
        ask(line)
    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        latencies = sorted(clients.map(ask, lines))
    taken = time.perf_counter() - begun
    return {
        "requests_per_second": len(lines) / taken, "clients": CLIENTS,
        "p50_milliseconds": 1e3 * statistics.median(latencies),
        "p99_milliseconds": 1e3 * latencies[int(0.99 * (len(latencies) - 1))],
    }  # fmt: skip


def random_model(folder: Path, arguments: Arguments) -> list[str]:
    """Writes a translation model of random weights, and returns words that its tokenizer knows."""
    words = [f"{first}{second}{third}" for first in "bdfgklm" for second in "aeiou" for third in "nrst"]
    tokenizer = train_tokenizer([" ".join(words)] * 2, TokenizerConfig(vocab_size=300))
    kind = family("transformer")
    sizes = {"d_model": 16, "N": 1, "h": 2, "d_ff": 24} if arguments.in_small else {}
    vocabulary = {f"{side}_vocab_size": tokenizer.vocab_size for side in ("src", "tgt")}
    limits = {"src_seq_len": 64, "tgt_seq_len": 64}
    config = kind.config.model_validate({**sizes, **vocabulary, **limits, "dropout": 0.0})
    torch.manual_seed(1)
    text = TokenizerPair(tokenizer, tokenizer)
    save_bundle(folder, Bundle(config, kind.build(config), text, provenance=language_entries("en", "de")))
    return words


DECODING = "{least:.2f} to {most:.2f} x transformers; same lines in float32: {agreement:.1%}"
INFERENCE = "{per_second:,.1f} a second, {ours_over_transformers:.2f} x transformers; agreement {agreement:.4f}"
SERVING = (
    "{requests_per_second:,.0f} requests/s from {clients} clients, p50 {p50_milliseconds:.0f} ms, "
    "p99 {p99_milliseconds:.0f} ms"
)


def main() -> None:
    """Measures what is not there yet."""
    arguments = read_arguments(__doc__)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    ledger = Ledger("gpu-4", arguments)
    if has_package("transformers"):
        for size in ("tiny",) if arguments.in_small else ("base", "big"):
            ledger.measure(f"{size}, decoding", 120, partial(decode, arguments, size), DECODING)
        for name, case in FAMILIES[arguments.in_small].items():
            ledger.measure(name, 30, partial(infer, case, arguments), INFERENCE)
    else:
        print("transformers is not installed: decoding and the families are not measured")
    ledger.measure("transformer serve", 45, partial(serve, arguments), SERVING)
    ledger.finish()


if __name__ == "__main__":
    main()
