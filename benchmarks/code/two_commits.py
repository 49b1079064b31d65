"""Compares two checkouts of this project side by side: decoding, start, server, and steps of training.

Each checkout runs in processes of its own, and they take turns, so that other load on the machine affects both alike. A
ratio is the time of the first checkout over that of the second, taken turn by turn: above 1, the second is faster. The
model is a bundle that both can load. The server answers 200 sentences, one a request, to 1 or 16 clients in threads.
Training is float32 on random ids: `tiny` (4+4 layers, d 128, V 10,000, 160 pairs of 24 tokens) and `base` (the paper's,
V 32,000, 32 pairs of 32 tokens); earlier names of modules are known, too.

Usage: python benchmarks/code/two_commits.py FIRST SECOND --model BUNDLE --text FILE [--turns 12] [--only PARTS]
                                             [--out FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

DECODING = """
import sys, time, torch
from transformer import load
from transformer.decoding import Search
model, text, precision = sys.argv[1:]
torch.set_num_threads(2)
lines = open(text, encoding="utf-8").read().splitlines()
translators = {beam: load(model, precision=precision, search=Search(beam=beam, max_tokens=16)) for beam in (1, 4)}
for translator in translators.values():
    translator.translations(lines[:4])
print("ready", flush=True)
for order in sys.stdin:
    beam, n = map(int, order.split())
    start = time.perf_counter()
    translators[beam].translations(lines[:n])
    print(time.perf_counter() - start, flush=True)
"""
TRAINING = """
import sys, time, numpy, torch
from transformer import build_transformer
try:
    from transformer.data.dataset import pair_batch
    from transformer.runtime.allocator import retain_heap
    from transformer.training.backend import choose_backend, enlarge_onednn_cache
    from transformer.training.objectives.translation import TranslationObjective
except ModuleNotFoundError:
    from transformer.data.source import pair_batch
    from transformer.memory import keep_freed_memory as retain_heap
    from transformer.training.hardware import choose_hardware as choose_backend
    from transformer.training.hardware import keep_compiled_products as enlarge_onednn_cache
    from transformer.training.objectives import TranslationObjective
torch.set_num_threads(2)
retain_heap()
enlarge_onednn_cache()
torch.manual_seed(1)
tiny = dict(d_model=128, N=4, h=4, d_ff=256, dropout=0.3)
vocabulary, sizes, rows, length = {"tiny": (10_000, tiny, 160, 24), "base": (32_000, {}, 32, 32)}[sys.argv[1]]
model = build_transformer(vocabulary, vocabulary, 64, 64, norm_order="post", share_embeddings="all", **sizes)
objective, backend = TranslationObjective(model, 0.1).train(), choose_backend("cpu", "float32")
optimizer = torch.optim.Adam(objective.parameters(), lr=1e-4, fused=True)
draw = numpy.random.default_rng(0)
batch = pair_batch(*[[draw.integers(4, vocabulary, length).astype("int32") for _ in range(rows)] for _ in "st"])
compute_context = getattr(backend, "compute_context", None) or backend.computing
def step():
    with compute_context():
        loss = objective(batch).loss_sum
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
step()
step()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    step()
    print(time.perf_counter() - start, flush=True)
"""
STARTING = """
import subprocess, sys, time
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    command = [sys.executable, "-m", "transformer", "translate", sys.argv[1]]
    subprocess.run(command, input="A man sleeps.\\n", text=True, capture_output=True, check=True)
    print(time.perf_counter() - start, flush=True)
"""
SERVING = """
import http.client, itertools, json, socket, subprocess, sys, tempfile, threading, time
model, text = sys.argv[1:]
lines = open(text, encoding="utf-8").read().splitlines()[:200]
with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
limits = "[limits]\\nconcurrent = 0\\nper_minute = 0\\n"
with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as file:
    file.write(f'port = {port}\\nworkers = 2\\nlog = "none"\\npreload = true\\n{limits}[models]\\nen-de = "{model}"\\n')
command = [sys.executable, "-m", "transformer", "serve", "--config", file.name]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
def send(numbers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for i in numbers:
        body = json.dumps({"q": lines[i], "source": "en", "target": "de"})
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
def answer_all(clients):
    numbers = [range(i, len(lines), clients) for i in range(clients)]
    threads = [threading.Thread(target=send, args=(part,)) for part in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
for _ in range(300):
    try:
        send([0])
        break
    except OSError:
        time.sleep(0.2)
answer_all(16)
print("ready", flush=True)
for order in sys.stdin:
    start = time.perf_counter()
    answer_all(int(order))
    print(time.perf_counter() - start, flush=True)
server.terminate()
server.wait(30)
"""
PARTS = ("int8", "float32", "start", "server", "tiny", "base")
ORDERS = [(beam, n) for beam in (1, 4) for n in (1, 64)]


class Side:
    """A checkout in a process of its own."""

    def __init__(self, checkout: Path, program: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "2"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, order: str) -> float:
        """Sends an order and returns the seconds that it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def compare(sides: list[Side], order: str, turns: int) -> dict[str, float]:
    """Returns medians of the times and of their ratio, with the quartiles of the ratio."""
    times: list[tuple[float, float]] = []
    for turn in range(turns):
        seconds = {side: side.seconds(order) for side in (sides if turn % 2 == 0 else sides[::-1])}
        times.append((seconds[sides[0]], seconds[sides[1]]))
    ratios = [first / second for first, second in times]
    lower, _, upper = statistics.quantiles(ratios, n=4)
    medians = (statistics.median(column) for column in zip(*times, strict=True))
    figures = (statistics.median(ratios), lower, upper, *medians)
    names = ("ratio", "lower_quartile", "upper_quartile", "first_seconds", "second_seconds")
    return {name: round(figure, 3) for name, figure in zip(names, figures, strict=True)}


def processor() -> str:
    """Returns the model name of the processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    """Runs all comparisons and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    checkouts = [options.first, options.second]
    results: dict[str, Any] = {}

    def measure(program: str, arguments: tuple[str, ...], orders: dict[str, str]) -> None:
        sides = [Side(checkout, program, *arguments) for checkout in checkouts]
        for name, order in orders.items():
            results[name] = result = compare(sides, order, options.turns)
            print(
                f"{name:<24}{result['ratio']:6.3f}  ({result['lower_quartile']} to {result['upper_quartile']})",
                flush=True,
            )
        for side in sides:
            side.close()

    for precision in [part for part in ("int8", "float32") if part in options.only]:
        orders = {f"{precision}, beam {beam}, {n}": f"{beam} {n}" for beam, n in ORDERS}
        measure(DECODING, (options.model, options.text, precision), orders)
    if "start" in options.only:
        measure(STARTING, (options.model,), {"start to translation": "start"})
    if "server" in options.only:
        measure(SERVING, (options.model, options.text), {"server, 1 client": "1", "server, 16 clients": "16"})
    for shape in [part for part in ("tiny", "base") if part in options.only]:
        measure(TRAINING, (shape,), {f"training, {shape}": "step"})
    commits = [
        subprocess.check_output(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], text=True).strip()
        for checkout in checkouts
    ]
    about = {
        "first": commits[0],
        "second": commits[1],
        "command": " ".join(Path(argument).name for argument in sys.argv),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "turns": options.turns,
    }
    if options.out:
        options.out.write_text(json.dumps(about | {"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
