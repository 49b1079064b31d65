"""The steps, resumption and tables of `benchmarks/decoding/beside_peers.py`."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from samples import ROOT

FOLDER = ROOT / "benchmarks" / "decoding"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """The names of the script, which imports its neighbours."""
    sys.path.insert(1, str(FOLDER))
    try:
        return runpy.run_path(str(FOLDER / "beside_peers.py"))
    finally:
        sys.path.remove(str(FOLDER))


def write_script(folder: Path) -> None:
    """A script that counts its runs and fails if it is told to."""
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "script.py").write_text(
        "import json, os, sys\n"
        "with open(os.environ['RUNS'], 'a') as file: file.write(sys.argv[1] + '\\n')\n"
        "if os.path.exists(sys.argv[1]): sys.exit(1)\n"
        "open(sys.argv[-1], 'w').write(json.dumps({'variable': os.environ.get('KIND'), 'files': {}}))\n"
    )


def test_a_stopped_run_goes_on_where_it_stopped(
    program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches steps that are lost, measured twice, or kept though their arguments changed."""
    write_script(tmp_path)
    runs, out, stop = tmp_path / "runs", tmp_path / "results" / "out.json", tmp_path / "stop"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setitem(program["run_steps"].__globals__, "ROOT", tmp_path)
    step = program["Step"]
    planned = [step("first", ["script.py", "a"], {"KIND": "one"}), step("second", ["script.py", str(stop)])]
    stop.touch()
    with pytest.raises(SystemExit, match="'second' failed"):
        program["run_steps"](planned, out)
    assert list(json.loads(out.read_text())) == ["first"]
    stop.unlink()
    result = program["run_steps"](planned, out)
    assert [result[name]["variable"] for name in ("first", "second")] == ["one", None]
    assert result["second"]["arguments"] == ["script.py", "stop"]  # without the folders of this machine
    program["run_steps"]([step("first", ["script.py", "b"], {"KIND": "one"}), planned[1]], out)
    assert runs.read_text().split() == ["a", str(stop), str(stop), "b"]


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "expected"),
    [
        ("AMD EPYC", 26, 2, "avx2", "epyc-zen5-2-cores"),
        ("AMD EPYC", 25, 17, "avx2", "epyc-zen4-2-cores"),
        ("AMD EPYC 7763", 25, 1, "avx2", "epyc-zen3-2-cores"),
        ("Intel(R) Xeon(R) Processor @ 2.10GHz", 6, 143, "avx2 amx_int8", "xeon-amx-2-cores"),
        ("Intel(R) Core(TM) i7-1185G7 @ 3.00GHz", 6, 140, "avx2", "intel-r-core-tm-i7-1185g7-2-cores"),
    ],
)
def test_results_are_named_after_the_machine(
    program: dict[str, Any], vendor: str, family: int, model: int, flags: str, expected: str
) -> None:
    """Catches a result that overwrites that of another processor."""
    cpuinfo = f"cpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {vendor}\nflags\t\t: {flags}\n"
    assert program["machine_name"](cpuinfo, 2) == expected


def test_the_table_compares_with_the_better_peer(program: dict[str, Any]) -> None:
    """Catches a lead over the slower peer, and a latency that is shown as a rate."""
    engines = {
        f"{name}-int8": {"lines_per_second": {"loaded": {"median": rate}}, "bleu": bleu}
        for name, rate, bleu in (("ours", 500.0, 34.41), ("ctranslate2", 400.0, 34.23), ("marian", 625.0, 33.0))
    }
    over = {
        "ctranslate2-int8": {"loaded": {"median": 1.25, "min": 1.2, "max": 1.3}},
        "marian-int8": {"loaded": {"median": 0.8, "min": 0.75, "max": 0.9}},
    }
    result = {"small, one line, AVX2": {"files": {"test.en, beam 4": {"engines": engines, "ours_over": over}}}}
    row = (
        "| small, one line, AVX2 | beam 4 | 2.00 ms | 2.50 ms | 1.60 ms | **0.80** (0.75 to 0.90) | 34.4, 34.2, 33.0 |"
    )
    assert program["tables"](result).splitlines()[-1] == row


def test_avx2_is_asked_of_the_engines(program: dict[str, Any], tmp_path: Path) -> None:
    """Catches an engine that uses AVX-512 in the rows of AVX2."""
    arguments = program["argparse"].Namespace(
        peers=tmp_path, model=tmp_path, file=["a", "b"], rounds=3, lines=10, calls=5, seconds=1.0
    )
    steps = {step.name: step.environment for step in program["steps"](arguments)}
    limited = {name: environment for name, environment in steps.items() if name.endswith("AVX2")}
    assert len(limited) == 3
    for environment in limited.values():
        assert environment["TRANSFORMER_KERNELS"] == "avx2"
        assert environment["CT2_FORCE_CPU_ISA"] == environment["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert all(not environment for name, environment in steps.items() if name not in limited)
