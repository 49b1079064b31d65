"""The scripts of `make gpu-1` to `gpu-4`: their file of results, and each of them in small on the CPU."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import ROOT

FOLDER = ROOT / "benchmarks" / "gpu"
SCRIPTS = {
    "training_step.py": ("gpu-1.json", {"base, losses", "base, eager", "base, eager, profile", "tests"}),
    "full_batches.py": (
        "gpu-2.json",
        {
            "base, Adam", "base, attention without padding", "base, batches that fill the memory, ours",
            "base, batches that fill the memory, transformers", "padding",
        },
    ),
    "whole_run.py": (
        "gpu-3.json",
        {"transformer train, eager", "transformer train, stopped and resumed", "base, FSDP2 of one rank"},
    ),
    "inference.py": ("gpu-4.json", {"tiny, decoding", "vectors", "continuations", "labels", "transformer serve"}),
}  # fmt: skip


@pytest.fixture
def ledger_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names of `ledger.py`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(FOLDER / "ledger.py"))


def open_ledger(names: dict[str, Any], out: Path, minutes: float = 7.0, again: bool = False) -> Any:
    """Returns a ledger in a folder."""
    return names["Ledger"]("gpu-9", names["Arguments"](torch.device("cpu"), True, out, minutes, again))


def test_a_measurement_is_written_at_once_and_not_repeated(ledger_file: dict[str, Any], tmp_path: Path) -> None:
    """Catches figures that are lost with the process, and a rerun that measures again what is there."""
    calls: list[str] = []
    for again, expected in ((False, 1), (False, 1), (True, 2)):
        ledger = open_ledger(ledger_file, tmp_path, again=again)
        ledger.measure("a", 1, lambda: calls.append("a") or {"value": 5}, "{value:.1f}")
        assert len(calls) == expected
        content = json.loads((tmp_path / "gpu-9.json").read_text())
        assert content["measurements"]["a"]["value"] == 5
        assert content["in_small"].startswith("no GPU")


def test_an_error_is_recorded_and_tried_again(
    ledger_file: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches one failure that ends all measurements, counts as a result, or is not told at the end."""

    def fail() -> dict[str, Any]:
        raise ValueError("losses differ")

    ledger = open_ledger(ledger_file, tmp_path)
    ledger.measure("a", 1, fail)
    ledger.measure(
        "b", 1, lambda: {"speed": {"median": 1234.6, "min": 1.0}, "ratio": None}, "{speed:,.0f}/s, {ratio:.2f} x"
    )
    with pytest.raises(SystemExit, match="failed: a"):
        ledger.finish()
    assert "b: 1,235/s, - x\n" in capsys.readouterr().out
    assert (
        json.loads((tmp_path / "gpu-9.json").read_text())["measurements"]["a"]["error"] == "ValueError: losses differ"
    )
    ledger = open_ledger(ledger_file, tmp_path)
    ledger.measure("a", 1, lambda: {"value": 1})
    with pytest.raises(SystemExit) as end:
        ledger.finish()
    assert end.value.code == 0


def test_nothing_begins_that_would_end_too_late(
    ledger_file: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a script that is killed in the middle of a measurement; the first one always runs, so that reruns end."""
    ledger = open_ledger(ledger_file, tmp_path, minutes=1.0)
    for name, seconds in (("a", 100), ("b", 61), ("c", 1)):
        ledger.measure(name, seconds, lambda: {"value": 1})
    with pytest.raises(SystemExit):
        ledger.finish()
    assert set(ledger.measurements) == {"a", "c"}
    assert "the same command measures what is left: b\n" in capsys.readouterr().out


def test_the_more_specific_name_of_a_gpu_decides(ledger_file: dict[str, Any]) -> None:
    """Catches a share of the peak of another GPU, and one for a GPU that is not in the table."""
    peak = ledger_file["peak_rate"]
    assert peak("NVIDIA H100 PCIe") < peak("NVIDIA H100 80GB HBM3") == peak("NVIDIA H200")
    assert peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak("NVIDIA GeForce GTX 1080") is None


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_in_small_without_a_gpu(script: str, tmp_path: Path) -> None:
    """Catches a script that first fails on a GPU that somebody pays for."""
    name, expected = SCRIPTS[script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TRANSFORMER_DATA": str(tmp_path / "none")}
    call = [sys.executable, str(FOLDER / script), "--device", "cpu", "--out", str(tmp_path), "--minutes", "60"]
    result = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    content = json.loads((tmp_path / name).read_text())
    assert content["in_small"] in result.stdout
    assert set(content["measurements"]) == expected
    for title, figures in content["measurements"].items():
        assert "error" not in figures
        assert re.search(rf"^{re.escape(title)}: .*\d", result.stdout, re.MULTILINE)
    again = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    assert again.stdout.count("there already") == len(expected)


def test_make_knows_every_script() -> None:
    """Catches a script that no `make gpu-N` runs, or a number without one."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (names,) = re.findall(r"^GPU_SCRIPTS := (.*)$", makefile, re.MULTILINE)
    assert [f"{name}.py" for name in names.split()] == [*SCRIPTS]
