"""Translates, trains and serves without the compiled kernels, as on ARM and on macOS."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import transformer
from samples import CORPUS, ROOT

MODEL = ROOT / "models" / "en-de" / "transformer_model_en_de" / "bundle"
ENVIRONMENT = {**os.environ, "TRANSFORMER_KERNELS": "off"}
COMMAND = [sys.executable, "-m", "transformer"]
QUESTION = "Where is the station?"
LIMIT = 300


def run(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=LIMIT
    )  # fmt: skip


@pytest.fixture(scope="module")
def answer() -> str:
    """Returns the translation with the kernels, if this machine has them, in float32."""
    return transformer.load(MODEL, precision="float32", workers=1)(QUESTION)


def test_quantized_model_translates(tmp_path: Path, answer: str) -> None:
    """Catches int8 weights that only the kernels can read, and a silent loss of speed."""
    result = run("translate", MODEL, QUESTION, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{answer}\n")
    assert "without compiled kernels" in result.stderr


def test_run_is_trained_resumed_and_used(tmp_path: Path) -> None:
    """Catches a step of training that only the kernels have."""
    settings = {
        "data.validation_pairs": 20, "tokenizer.vocab_size": 400, "model.preset": "tiny",
        "training.batch_tokens": 512, "training.validate_every": 12,
    }  # fmt: skip
    train = ["train", CORPUS.with_suffix(".en"), CORPUS.with_suffix(".de"), "--run", "run"]
    for steps in (6, 12):
        options = [f"--set={key}={value}" for key, value in {**settings, "training.max_steps": steps}.items()]
        result = run(*train, *options, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in metrics if "scores" in entry or "loss" in entry][-1] == 12
    result = run("translate", "run", QUESTION, "Hello.", "--max-tokens", 8, cwd=tmp_path)
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 2), result.stderr


def test_server_answers(tmp_path: Path, answer: str) -> None:
    """Catches workers that only run with the kernels."""
    command = [*COMMAND, "serve", f"en-de={MODEL}", "--port", "0", "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while not (address := re.search(r"http://127\.0\.0\.1:\d+", line := process.stderr.readline())):
            assert line, "the server ended before it printed its address"
        body = json.dumps({"q": QUESTION, "source": "en", "target": "de"}).encode()
        request = urllib.request.Request(f"{address[0]}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            assert json.load(response)["translatedText"] == answer
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0
