"""Speed of the model families compared with transformers and sentence-transformers: vectors, text, images, training.

Every engine loads the same published folder (a trained MiniLM, random models in the sizes of GPT-2 small and ViT-B/16)
in its own process; rounds alternate between engines, and medians are reported. Training steps alternate update by
update, with all engines in memory at once, because the engines differ by less than the machine does from one minute to
the next. A figure counts only if the outputs agree in that run, which is reported: least cosine of vectors or logits,
share of texts with the same tokens, largest difference of losses. Each peer runs with its best batch size, and with
`torch.compile` for vectors, images and training and the static cache, plain and compiled, for generation if these are
faster. Every engine has the memory settings of `training/throughput.py` ("kept"). A lower bound of each training step
is measured in every round; it consists of torch's bf16 products of its shapes and of Adam.

The 1,000 texts are cut from the given files, one after another, in lengths spread evenly on a logarithmic scale, about
3 to 250 tokens. The random GPT-2 that generates has an untied head, so that it does not copy its input: at least a
third of the tokens of every text must differ.

Usage: python benchmarks/families/throughput.py --minilm FOLDER --texts FILE [FILE ...] --peers FOLDER [--rounds 5]
       [--out FILE]
`benchmarks/families/engines/setup.sh` creates the environments of the peers.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
from jobs import KEPT
from report import command_line, hardware

ENGINES = Path(__file__).parent / "engines"
TEXTS, LEAST_WORDS, MOST_WORDS, PROMPT, WRITTEN = 1000, 2, 180, 32, 64
TURNS = 7
"""Updates of each engine in a round."""
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
UNTIED = GPT2 | {"tie_word_embeddings": False}
VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "image_size": 224, "patch_size": 16,
}  # fmt: skip


def case(job: str, **values: Any) -> dict[str, Any]:
    """One thing to be timed."""
    return {"job": job, **values}


CASES: dict[str, dict[str, Any]] = {
    "embed 1,000 texts": case("embed", batches=[16, 32, 64]),
    "generate, 1 text": case("generate", model="writing", rows=1),
    "generate, 8 texts": case("generate", model="writing", rows=8),
    "classify 8 images": case("images", rows=8),
    "training step, MiniLM": case("step", model="minilm", rows=32, length=32),
    "training step, GPT-2 small": case("step", model="gpt2", rows=4, length=128),
    "training step, ViT-B/16": case("step", model="vit", rows=8),
}
OUR_PRECISIONS: dict[str, list[str]] = {
    "embed": ["float32", "bf16", "int8"], "generate": ["float32", "bf16", "int8"],
    "images": ["float32", "bf16", "int8"], "step": ["float32", "bf16"],
}  # fmt: skip
PEERS: dict[str, dict[str, list[str]]] = {
    "transformers": {
        "embed": ["float32", "bf16"], "generate": ["float32", "bf16"], "images": ["float32", "bf16"],
        "step": ["float32", "bf16"],
    },
    "sentence_transformers": {"embed": ["float32", "bf16"]},
}  # fmt: skip
DEFAULT = {"embed": "bf16", "generate": "int8", "images": "int8", "step": "bf16"}
"""Our precision where nobody asks for one."""


def published_models(folder: Path, python: Path) -> None:
    """Writes random models, their logits sharpened, with transformers."""
    code = (
        "import sys, torch, transformers as t\n"
        f"for name, kind, config in (('gpt2', t.GPT2LMHeadModel, t.GPT2Config(**{GPT2!r})),"
        f" ('writing', t.GPT2LMHeadModel, t.GPT2Config(**{UNTIED!r})),"
        f" ('vit', t.ViTForImageClassification, t.ViTConfig(**{VIT!r}, num_labels=1000))):\n"
        "    torch.manual_seed(1)\n"
        "    model = kind(config)\n"
        "    with torch.no_grad():\n"
        "        for key, p in model.named_parameters():\n"
        "            if name == 'writing' and ('wte' in key or 'lm_head' in key): p.mul_(8)\n"
        "    model.save_pretrained(sys.argv[1] + '/' + name)\n"
    )
    subprocess.run([str(python), "-c", code, str(folder)], check=True, capture_output=True)


class Running:
    """An engine that works on an order in its own process; `told` is its standard output."""

    def __init__(self, python: Path | str, engine: str, order: dict[str, Any]) -> None:
        threads = {"OMP_NUM_THREADS": str(order["threads"]), "TOKENIZERS_PARALLELISM": "false"}
        environment = {**os.environ, **KEPT, **threads}
        call = [str(python), str(ENGINES / f"{engine}.py"), json.dumps(order)]
        self.words = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, env=environment, text=True
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asked, self.told, self.last = self.process.stdin, self.process.stdout, ""

    def hear(self) -> None:
        """Waits for a line."""
        self.last = self.told.readline()
        if not self.last:
            self.result()

    def turn(self) -> None:
        """One turn of an order with turns."""
        print(file=self.asked, flush=True)
        self.hear()

    def result(self) -> dict[str, Any]:
        """Ends the engine and returns its result: seconds, and the fastest setting."""
        with suppress(BrokenPipeError):
            self.asked.close()
        lines = [self.last, *self.told]
        if self.process.wait():
            self.words.seek(0)
            raise SystemExit(f"{self.process.args}\n{self.words.read()[-3000:]}")
        return json.loads(lines[-1])


def run(python: Path | str, engine: str, order: dict[str, Any]) -> dict[str, Any]:
    """Runs an engine alone and returns its result."""
    return Running(python, engine, order).result()


def run_in_turn(pythons: list[Path | str], engines: list[str], orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the results of engines that are in memory at once and take turns."""
    running: list[Running] = []
    for python, engine, order in zip(pythons, engines, orders, strict=True):
        running.append(Running(python, engine, {**order, "turns": True}))
        while running[-1].last != "ready\n":
            running[-1].hear()
    for _ in range(TURNS):
        for process in running:
            process.turn()
    return [process.result() for process in running]


def agreement(job: str, ours: np.ndarray, theirs: np.ndarray) -> float:
    """Agreement of two outputs: least cosine, share of equal tokens, or the largest relative difference of losses."""
    if job == "generate":
        return float((ours == theirs).all(axis=1).mean())
    if job == "step":
        return float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(axis=1) / norms).min())


def main() -> None:
    """Runs every case by every engine, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    pythons = {name: arguments.peers / name / "bin" / "python" for name in PEERS}
    words = [word for path in arguments.texts for word in path.read_text(encoding="utf-8").split()]
    texts = mixed_texts(words)
    chosen = {title: case for title, case in CASES.items() if not arguments.only or arguments.only in title}
    needed = {peer for peer, jobs in PEERS.items() if any(case["job"] in jobs for case in chosen.values())}
    versions = {name: version_of(name, pythons[name]) for name in sorted(needed)}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        published_models(folder, pythons["transformers"])
        (folder / "minilm").symlink_to(arguments.minilm.resolve())
        (folder / "texts.json").write_text(json.dumps(texts))
        for title, case in chosen.items():
            results[title] = compare(title, case, folder, pythons, arguments.rounds, arguments.threads)
    report = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")), "threads": arguments.threads, "rounds": arguments.rounds,
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__,
            **versions,
        },
        "cases": results,
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")


def mixed_texts(words: list[str]) -> list[str]:
    """Texts of running words, short and long in turn as a seeded draw has them."""
    sizes = np.geomspace(LEAST_WORDS, MOST_WORDS, TEXTS).round().astype(int)
    np.random.default_rng(1).shuffle(sizes)
    if len(words) < sizes.sum():
        raise SystemExit(f"--texts has {len(words):,} words, and {sizes.sum():,} are needed; give more files")
    ends = np.cumsum(sizes)
    return [" ".join(words[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def version_of(name: str, python: Path) -> str:
    """Returns the version of a peer in its own environment."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def of_rounds(job: str, seconds: dict[tuple[str, str], list[float]]) -> dict[str, list[float]]:
    """Ours over the peers, round by round: the best peer is that of all rounds together."""

    def best(precision: str | None) -> list[float]:
        rivals = [
            values
            for (engine, peer_precision), values in seconds.items()
            if engine != "ours" and precision in (None, peer_precision)
        ]
        return min(rivals, key=median)

    def over(rival: list[float], precision: str) -> list[float]:
        return [theirs / mine for theirs, mine in zip(rival, seconds["ours", precision], strict=True)]

    ratios = {
        "float32 over the best peer's float32": over(best("float32"), "float32"),
        "default over the peers' best": over(best(None), DEFAULT[job]),
    }
    if ("ours", "bf16") in seconds:
        ratios["bf16 over the best peer's bf16"] = over(best("bf16"), "bf16")
    return ratios


def compare(
    title: str, case: dict[str, Any], folder: Path, pythons: dict[str, Path], rounds: int, threads: int
) -> dict[str, Any]:
    """One case: seconds of every engine and precision, round by round."""
    entries = [("ours", precision) for precision in OUR_PRECISIONS[case["job"]]]
    entries += [(peer, precision) for peer, jobs in PEERS.items() for precision in jobs.get(case["job"], [])]
    seconds: dict[tuple[str, str], list[float]] = {entry: [] for entry in entries}
    outputs: dict[tuple[str, str], np.ndarray] = {}
    chosen: dict[str, Any] = {}
    bounds: list[dict[str, float]] = []
    outs = [folder / f"{engine}-{precision}.npy" for engine, precision in entries]
    orders = [
        {**case, "folder": str(folder), "precision": precision, "threads": threads, "out": str(out), "prompt": PROMPT,
         "written": WRITTEN} for (_, precision), out in zip(entries, outs, strict=True)
    ]  # fmt: skip
    engines = [engine for engine, _ in entries]
    calls = [sys.executable if engine == "ours" else pythons[engine] for engine in engines]
    for _ in range(rounds):
        if case["job"] == "step":
            results = run_in_turn(calls, engines, orders)
        else:
            results = [run(*call) for call in zip(calls, engines, orders, strict=True)]
        for (engine, precision), out, outcome in zip(entries, outs, results, strict=True):
            seconds[engine, precision].append(outcome["seconds"])
            outputs[engine, precision] = np.load(out, allow_pickle=False)
            chosen[f"{engine} {precision}"] = outcome["chosen"]
        if case["job"] == "step":
            bounds.append(run(sys.executable, "bound", {**case, "folder": str(folder), "threads": threads}))
    reference = outputs["transformers", "float32"]
    if case["job"] == "generate":
        fewest = min(len(set(row)) for row in reference.tolist())
        if fewest < WRITTEN // 3:
            raise SystemExit(f"{title}: a text has {fewest} different tokens of {WRITTEN}; the model repeats itself")
    medians = {entry: median(values) for entry, values in seconds.items()}
    ratios = {name: median(ratios) for name, ratios in of_rounds(case["job"], seconds).items()}
    print(title, {name: round(value, 2) for name, value in ratios.items()}, flush=True)
    return {
        "ratios": ratios,
        "least and most of the rounds": {
            name: [min(values), max(values)] for name, values in of_rounds(case["job"], seconds).items()
        },
        "seconds": {f"{e} {p}": {"median": medians[e, p], "all": values} for (e, p), values in seconds.items()},
        "agreement with transformers float32": {
            f"{e} {p}": agreement(case["job"], output, reference) for (e, p), output in outputs.items()
        },
        "chosen": chosen,
        **({"bound": bound(bounds, seconds)} if bounds else {}),
    }


def bound(bounds: list[dict[str, float]], seconds: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    """Speedup over the peer of a step that consists of its products and Adam alone, by round."""
    least = [parts["products"] + parts["adam"] for parts in bounds]
    rival = min((values for (engine, _), values in seconds.items() if engine != "ours"), key=median)
    mine = seconds["ours", DEFAULT["step"]]
    return {
        "seconds": {
            "products": median(parts["products"] for parts in bounds),
            "adam": median(parts["adam"] for parts in bounds),
        },
        "most over the peers' best": median(peer / bound for peer, bound in zip(rival, least, strict=True)),
        "share of it that ours reaches": median(bound / ours for bound, ours in zip(least, mine, strict=True)),
        "rounds": bounds,
    }


if __name__ == "__main__":
    main()
