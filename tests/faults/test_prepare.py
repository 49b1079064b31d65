"""`transformer prepare` as users run it, and runs that use its output."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samples import digit_pairs, tiny_recipe, write_lines
from substitution import substitute
from transformer.run.plan import prepare_data
from transformer.run.recipe import parse_recipe
from transformer.run.train import train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "transformer", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, env=ENVIRONMENT, check=False, text=True)


def test_prepared_ahead_and_used_by_a_run(
    digit_corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a `prepare` whose output differs from that of `train`, or is not used by it."""
    recipe = parse_recipe(tiny_recipe(digit_corpus, max_steps=2, validate_every=2))
    file = tmp_path / "recipe.toml"
    file.write_text(recipe.to_toml(), encoding="utf-8")
    result = command("prepare", file, "--output", tmp_path / "prepared")
    assert result.returncode == 0, result.stderr
    assert "600 read: " in result.stdout
    assert not result.stderr
    substitute(monkeypatch, "inputs.CorpusFile.read", None)
    data = recipe.data.model_copy(update={"prepared": str(tmp_path / "prepared")})
    assert train(recipe.model_copy(update={"data": data}), tmp_path / "run", quiet=True).progress.step == 2
    assert not (tmp_path / "run" / "tokens").exists()


def test_killed_and_repeated_it_makes_the_same(tmp_path: Path) -> None:
    """Catches an incomplete file that the next `prepare` uses."""
    sides = zip(*digit_pairs(30_000), strict=True)
    paths = [write_lines(tmp_path / name, list(side)) for name, side in zip(("src", "tgt"), sides, strict=True)]
    arguments = ["prepare", "--source", paths[0], "--target", paths[1], "--output"]
    assert command(*arguments, tmp_path / "whole").returncode == 0
    expected = contents(tmp_path / "whole")
    file_counts: list[int] = []
    for number in range(3):
        out = tmp_path / f"killed-{number}"
        call = [sys.executable, "-m", "transformer", *map(str, [*arguments, out])]
        process = subprocess.Popen(call, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and n_files(out) <= max(file_counts, default=0):
            time.sleep(0.002)
        process.kill()
        process.wait()
        file_counts.append(n_files(out))
        result = command(*arguments, out)
        assert result.returncode == 0, result.stderr
        assert contents(out) == expected
    assert file_counts[0] > 0, "killed before anything was written"


def n_files(folder: Path) -> int:
    """Returns the number of files in a folder, which another process may change."""
    return sum(len(files) for _, _, files in os.walk(folder))


def contents(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_going_on_reads_the_run_s_own_tokens(
    digit_corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a run that prepares its corpus again at every start."""
    for steps in (2, 3):
        recipe = parse_recipe(tiny_recipe(digit_corpus, max_steps=steps, decay_steps=3))
        assert train(recipe, tmp_path / "run", quiet=True).progress.step == steps
        substitute(monkeypatch, "inputs.CorpusFile.read", None)


def test_a_table_is_prepared_and_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches `--pairs` that does not reach the recipe, and a command without any text."""
    table = write_lines(tmp_path / "x.tsv", ["\t".join(pair) for pair in digit_pairs(60)])
    recipe = parse_recipe({"data": {"pairs": str(table), "validation_pairs": 3}, "model": {"preset": "tiny"}})
    assert prepare_data(recipe, tmp_path / "prepared", quiet=True).facts["read"] == 60
    result = command("prepare", "--output", tmp_path / "none", "--source", table)
    assert result.returncode == 2
    assert "nothing to train on; give a recipe, or two texts (SOURCE TARGET), or --pairs FILE" in result.stderr
    assert not (tmp_path / "none").exists()
    result = command("prepare", "--output", tmp_path / "none", "--set", f"data.pairs={table}")
    assert result.returncode == 0, "a text may also be given by its key"
