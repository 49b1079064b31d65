"""Translators and training in processes and threads that a user's program starts."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.pipelines.auto import load
from transformer.run.recipe import parse_recipe

SCRIPT = Path(__file__).with_name("compute_in_processes.py")
REFUSED = (
    "training.threads=2 does not work in a process forked from one that has computed; set training.threads=1, or start "
    "the process with multiprocessing's 'spawn' method"
)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot fork safely")
@pytest.mark.parametrize(("method", "threads"), [("fork", 1), ("fork", 2), ("forkserver", 2), ("spawn", 2)])
def test_processes_translate_and_train(tiny_run: Path, tmp_path: Path, method: str, threads: int) -> None:
    """Catches a forked process that waits for ever for threads that only its parent has."""
    source, target = zip(*digit_pairs(60), strict=True)
    corpus = write_lines(tmp_path / "src", list(source)), write_lines(tmp_path / "tgt", list(target))
    tree = tiny_recipe(corpus, max_steps=2)
    del tree["training"]["threads"]
    (tmp_path / "recipe.toml").write_text(parse_recipe(tree).to_toml(), encoding="utf-8")
    call = [sys.executable, SCRIPT, method, threads, tiny_run, tmp_path / "recipe.toml", tmp_path]
    result = subprocess.run(
        [*map(str, call)], capture_output=True, text=True, check=False, timeout=500,
        env={key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "forked" not in result.stderr, "a warning of the tokenizers' library"
    assert json.loads(result.stdout) == {
        "parent": "trained 2 steps", "pool": True, "executor": True, "anew": True, "child": "trained 2 steps",
        "two threads": REFUSED if method == "fork" else "trained 2 steps",
    }  # fmt: skip


@pytest.mark.parametrize(("threads", "workers"), [(1, 1), (2, 1), (2, 2)])
def test_threads_share_a_translator(tiny_run: Path, threads: int, workers: int) -> None:
    """Catches a thread that closes the processes of another, or gets its translations."""
    torch.set_num_threads(threads)
    translator = load(tiny_run, workers=workers)
    texts = [[f"{word} two three"] * 1500 for word in ("one", "four", "six", "nine")]
    expected = [load(tiny_run, workers=1).translations(lines[:1])[0].text for lines in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            translated = list(pool.map(translator.translations, texts))
            assert [{line.text for line in lines} for lines in translated] == [{text} for text in expected]
            translator.close()
