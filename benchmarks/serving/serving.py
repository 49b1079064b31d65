"""Translation servers under load: requests a second and latencies of `transformer serve` beside two on CTranslate2.

"per request" calls CTranslate2 once a request behind waitress with four threads, as LibreTranslate does; "batching"
is a small asyncio server that translates whatever waits together. All have the same weights in int8, greedy search and
the same requests, one sentence each; on two cores, by two translations at a time with a thread each, and the peers
also by one with two threads, of which the better counts. `wrk` shares the cores with each of them.

Every round runs all servers in turn with each number of clients. Further figures are of `transformer serve` alone:
the median of one client beside that of a call of `Translator` on one thread; 64 clients beside the rate of `transformer
translate` on the same sentences (whole command less its time for one line); 1,000 open connections; and how soon
requests are refused when the queue is full (alone with --full-queue). With --minutes, memory
under a mixed load is measured instead: single sentences, lists, HTML, beams, and clients that leave early.

A figure counts if no request failed. Shares of answers that equal those of ours offline are reported: CTranslate2
rounds inputs otherwise, and only ours translates again what loops or changes a number.

Usage: sh benchmarks/serving/engines/setup.sh .peers
       python benchmarks/serving/serving.py --model BUNDLE --text SOURCE [--rounds 3] [--seconds 20] [--out FILE]
       python benchmarks/serving/serving.py --model BUNDLE --text SOURCE --minutes 10 [--out FILE]
"""

import argparse
import http.client
import json
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from transformer import load as load_model
from transformer.bundle import load_bundle

sys.path.insert(1, str(Path(__file__).parents[1] / "training"))
sys.path.insert(1, str(Path(__file__).parents[1] / "startup"))
sys.path.insert(1, str(Path(__file__).parents[1] / "decoding"))
from report import command_line, hardware, spread
from servers import OURS, SERVERS, WORKERS, Servers, body, load, post
from stage import descendants, memory_kib
from throughput import read, sizes_of

CLIENTS = (1, 32, 64)
OPEN_CONNECTIONS = 1000
KEYS = ("requests_per_second", "p50_ms", "p99_ms")
SINGLE_CALLS = 300
"""Sentences that one client sends."""


def measure_servers(servers: Servers, bodies: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Returns the figures of all servers and numbers of clients, and ours over the better setting of each peer."""
    runs: list[dict[str, dict[int, dict[str, float]]]] = []
    for number in range(rounds):
        first = number % len(SERVERS)
        figures = {}
        for server in SERVERS[first:] + SERVERS[:first]:
            with servers.running(server) as (address, _):
                load(address, bodies, WORKERS, min(2.0, seconds))  # warm up
                figures[server.name] = {clients: load(address, bodies, clients, seconds) for clients in CLIENTS}
            print(f"round {number + 1}, {server.name}: {json.dumps(figures[server.name])}", flush=True)
        runs.append(figures)
    names = [server.name for server in SERVERS]
    return {
        "servers": {
            name: {
                clients: {key: spread([run[name][clients][key] for run in runs]) for key in KEYS}
                | {"failed": sum(run[name][clients]["failed"] for run in runs)}
                for clients in CLIENTS
            }
            for name in names
        },
        "ours_over_peer": {
            f"{peer}, {clients} clients": ratios(runs, peer, clients)
            for peer in ("CTranslate2 per request", "CTranslate2 batching")
            for clients in CLIENTS
        },
    }


def ratios(runs: list[dict[str, Any]], peer: str, clients: int) -> dict[str, Any]:
    """Returns ours over the setting of a peer with the most requests a second, within each round."""
    values: dict[str, list[float]] = {key: [] for key in KEYS}
    for run in runs:
        settings = [figures[clients] for name, figures in run.items() if name.startswith(peer)]
        best = max(settings, key=lambda figures: figures["requests_per_second"])
        for key, ratio in values.items():
            ratio.append(run[OURS.name][clients][key] / best[key])
    return {key: spread(ratio) for key, ratio in values.items()}


def measure_single(servers: Servers, sentences: list[str], rounds: int) -> dict[str, Any]:
    """Returns the latency of one client, that of a direct call, and their ratio within each round."""
    torch.set_num_threads(1)
    translator = load_model(servers.model, workers=1)
    texts = sentences[:SINGLE_CALLS]
    served, direct = [], []
    with servers.running(OURS) as (address, _):
        connection = http.client.HTTPConnection(address.removeprefix("http://"))

        def ask(text: str) -> None:
            connection.request("POST", "/translate", body(text), {"Content-Type": "application/json"})
            json.loads(connection.getresponse().read())

        for _ in range(rounds):
            served.append(median_ms(ask, texts))
            direct.append(median_ms(translator, texts))
    return {
        "served_p50_ms": spread(served), "direct_p50_ms": spread(direct),
        "served_over_direct": spread([a / b for a, b in zip(served, direct, strict=True)]),
    }  # fmt: skip


def median_ms(call: Callable[[str], object], texts: list[str]) -> float:
    """Returns the median time of a call in milliseconds."""
    times = []
    for text in texts:
        begun = time.perf_counter()
        call(text)
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def measure_offline(
    servers: Servers, sentences: list[str], bodies: Path, rounds: int, seconds: float
) -> dict[str, Any]:
    """Returns sentences a second of 64 clients and of `transformer translate`, and their ratio within each round."""
    whole, single = servers.folder / "whole.en", servers.folder / "single.en"
    whole.write_text("".join(f"{line}\n" for line in sentences))
    single.write_text(f"{sentences[0]}\n")
    offline, served = [], []
    for _ in range(rounds):
        offline.append((len(sentences) - 1) / (command_seconds(servers, whole) - command_seconds(servers, single)))
        with servers.running(OURS) as (address, _):
            load(address, bodies, WORKERS, min(2.0, seconds))
            served.append(load(address, bodies, 64, seconds)["requests_per_second"])
    return {
        "sentences": len(sentences), "offline_sentences_per_second": spread(offline),
        "served_sentences_per_second": spread(served),
        "served_over_offline": spread([a / b for a, b in zip(served, offline, strict=True)]),
    }  # fmt: skip


def command_seconds(servers: Servers, path: Path) -> float:
    """Returns the time of `transformer translate` for a file."""
    command = [
        sys.executable, "-m", "transformer", "translate", str(servers.model), "--quiet", "--workers", str(WORKERS),
        "--input", str(path), "--output", str(servers.folder / "translated"),
    ]  # fmt: skip
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - begun


def measure_connections(servers: Servers, bodies: Path, seconds: float) -> dict[str, Any]:
    """Returns the figures of 1,000 clients at once, and of 32 clients while 1,000 connections are open and idle."""
    with servers.running(OURS) as (address, process):
        before = tree_mib(process)
        host, port = address.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(OPEN_CONNECTIONS)]
        beside = load(address, bodies, 32, seconds)
        opened = tree_mib(process)
        for connection in idle:
            connection.close()
        at_once = load(address, bodies, OPEN_CONNECTIONS, seconds)
    return {"clients_at_once": at_once, "32_clients_beside_idle": beside, "mib_before": before, "mib_open": opened}


def measure_refusals(servers: Servers, sentences: list[str], seconds: float) -> dict[str, Any]:
    """Returns the latencies of one client's requests that find the queue full, while 32 others send lists of texts."""
    lists = servers.folder / "lists.jsonl"
    lists.write_bytes(b"".join(body(sentences[first : first + 20]) + b"\n" for first in range(0, len(sentences), 20)))
    refused: list[float] = []
    with servers.running(OURS, "queue_tokens = 1000\n") as (address, _):
        loading = threading.Thread(target=load, args=(address, lists, 32, seconds + 2))
        loading.start()
        time.sleep(1)
        connection = http.client.HTTPConnection(address.removeprefix("http://"))
        while loading.is_alive():
            begun = time.perf_counter()
            connection.request("POST", "/translate", body("Hello."), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                refused.append(1000 * (time.perf_counter() - begun))
            time.sleep(0.01)
    p99 = statistics.quantiles(refused, n=100)[98]
    return {"refused": len(refused), "p50_ms": statistics.median(refused), "p99_ms": p99, "max_ms": max(refused)}


def measure_equality(servers: Servers, sentences: list[str]) -> dict[str, float]:
    """Returns the share of answers of each server that equal those of a direct call, for a list of sentences."""
    expected = [result.text for result in load_model(servers.model, workers=1).translations(sentences)]
    shares = {}
    for server in SERVERS:
        with servers.running(server) as (address, _):
            answers = post(address, body(sentences))["translatedText"]
        shares[server.name] = sum(map(str.__eq__, answers, expected)) / len(expected)
    return shares


def measure_memory(servers: Servers, sentences: list[str], minutes: float) -> dict[str, Any]:
    """Returns the memory of all processes under a mixed load, a median for each minute, and its growth.

    The first minute is left out of the growth: workers start, and caches fill.
    """
    bodies = mixed_bodies(servers.folder / "mixed.jsonl", sentences)
    samples: list[tuple[float, float]] = []
    failed = requests = 0.0
    with servers.running(OURS) as (address, process):
        ended = threading.Event()
        begun = time.monotonic()

        def watch() -> None:
            while not ended.wait(1):
                samples.append((time.monotonic() - begun, tree_mib(process)))

        def leave() -> None:
            """Sends long requests and closes the connections before the answers."""
            host, port = address.removeprefix("http://").split(":")
            data = body(sentences[:50])
            head = f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            while not ended.wait(0.5):
                with socket.create_connection((host, int(port))) as connection:
                    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

        threads = [threading.Thread(target=target) for target in (watch, leave)]
        for thread in threads:
            thread.start()
        while time.monotonic() - begun < 60 * minutes:
            figures = load(address, bodies, 16, min(10.0, 60 * minutes))
            failed += figures["failed"]
            requests += figures["requests_per_second"] * min(10.0, 60 * minutes)
        ended.set()
        for thread in threads:
            thread.join()
    by_minute = [
        statistics.median([mib for second, mib in samples if minute <= second / 60 < minute + 1])
        for minute in range(max(1, int(minutes)))
    ]
    growth = by_minute[-1] / by_minute[min(1, len(by_minute) - 1)] - 1
    return {"mib_by_minute": by_minute, "growth": growth, "requests": round(requests), "failed": failed}


def mixed_bodies(path: Path, sentences: list[str]) -> Path:
    """Writes bodies of requests of all kinds, in the same order in each run."""
    draw = random.Random(1)
    kinds: list[Callable[[], bytes]] = [
        lambda: body(draw.choice(sentences)),
        lambda: body(draw.sample(sentences, 20)),
        lambda: body(f"<p>{draw.choice(sentences)} <b>{draw.choice(sentences)}</b></p>", format="html"),
        lambda: body(draw.choice(sentences), beam=4, alternatives=2),
        lambda: body(" ".join(draw.sample(sentences, 30))),
    ]
    chosen = draw.choices(kinds, weights=(80, 5, 5, 5, 5), k=2000)
    path.write_bytes(b"".join(kind() + b"\n" for kind in chosen))
    return path


def tree_mib(process: int) -> float:
    """Returns the memory of a process and all that it started; what n of them share counts once."""
    return sum(map(memory_kib, descendants(process))) / 1024


def main() -> None:
    """Measures and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="the folder that setup.sh made")
    parser.add_argument("--model", type=Path, required=True, help="a trained bundle with one joint tokenizer")
    parser.add_argument("--text", type=Path, required=True, help="sentences in the source language, one a line")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="time of each load")
    parser.add_argument("--parts", help="load, one_client, offline, open_connections, ..., with commas; default: all")
    parser.add_argument("--minutes", type=float, help="measure memory for so long instead")
    parser.add_argument("--full-queue", action="store_true", help="measure refusals alone")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sentences = read(arguments.text)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = sizes_of(load_bundle(arguments.model, dequantize=True), folder / "weights.safetensors")
        servers = Servers(folder, arguments.model, arguments.peers, sizes)
        bodies = folder / "bodies.jsonl"
        bodies.write_bytes(b"".join(body(sentence) + b"\n" for sentence in sentences))
        if arguments.minutes:
            outcome = {"memory": measure_memory(servers, sentences, arguments.minutes)}
        elif arguments.full_queue:
            outcome = {"full_queue": measure_refusals(servers, sentences, arguments.seconds)}
        else:
            rounds, seconds = arguments.rounds, arguments.seconds
            parts: dict[str, Callable[[], dict[str, Any]]] = {
                "load": lambda: measure_servers(servers, bodies, rounds, seconds),
                "one_client": lambda: measure_single(servers, sentences, rounds),
                "offline": lambda: measure_offline(servers, sentences, bodies, rounds, seconds),
                "open_connections": lambda: measure_connections(servers, bodies, seconds),
                "full_queue": lambda: measure_refusals(servers, sentences, seconds),
                "equal_answers": lambda: measure_equality(servers, sentences[:500]),
            }
            chosen = arguments.parts.split(",") if arguments.parts else list(parts)
            outcome = {name: parts[name]() for name in chosen}
        versions = {"python": platform.python_version(), "torch": torch.__version__, **servers.versions()}
    wrk = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    result = {
        "command": command_line(), "hardware": hardware(torch.device("cpu")),
        "versions": versions | {"uvicorn of transformer serve": version("uvicorn"), "wrk": wrk},
        "sizes": sizes, **outcome,
    }  # fmt: skip
    print(json.dumps(outcome, indent=2))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
