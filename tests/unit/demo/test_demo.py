"""The demo's own logic; that it reaches its figures is a run of minutes, kept under `benchmarks/results/`."""

from pathlib import Path

import pytest

from transformer import demo as demo_package
from transformer.cli import demo as demo_module
from transformer.demo import Phrasebook, load_phrasebook
from transformer.options.search import Search


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with a small corpus and few steps."""
    recipe = demo_module.demo_recipe

    def short(corpus: Path) -> dict[str, dict[str, object]]:
        full = recipe(corpus)
        steps = {"max_steps": 4, "warmup_steps": 2, "validate_every": 4, "save_every": 4, "batch_tokens": 512}
        return {**full, "training": {**full["training"], **steps}}

    def small() -> Phrasebook:
        whole = load_phrasebook()
        return Phrasebook(whole.train[:3000], whole.validation[:20], whole.test[:40])

    monkeypatch.setattr(demo_module, "demo_recipe", short)
    monkeypatch.setattr(demo_package, "load_phrasebook", small)


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
def test_demo_shows_what_it_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a demo that breaks after training, a missing picture, and a share that is not of the held-out set."""
    demo_module.demo(tmp_path / "d")
    shown = capsys.readouterr().out
    assert "exact match: 0.0 %" in shown, "four steps teach nothing: anything else is not measured"
    baseline = shown.split("nearest neighbour, for comparison: ")[1].split(" %")[0]
    assert float(baseline) < 30
    assert "(should be: " in shown
    for picture in ("attention.png", "run/curve.png"):
        assert (tmp_path / "d" / picture).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "d" / "corpus" / "test.de").read_text().count("\n") == 40


@pytest.mark.slow
def test_parsing_demo_shows_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a demo of parsing that breaks, and scores that are not of the held-out trees."""
    recipe = demo_module.parsing_recipe
    short = {"max_steps": 3, "warmup_steps": 1, "validate_every": 3, "save_every": 3, "batch_tokens": 512}
    monkeypatch.setattr(demo_module, "parsing_recipe", lambda corpus: recipe(corpus).with_keys("training", short))
    monkeypatch.setattr(demo_module, "TREES", {"train": 300, "validation": 10, "test": 12})
    monkeypatch.setattr(demo_module, "TREE_SEARCH", Search(max_tokens=20, retry_degenerate=False))
    demo_module.demo(tmp_path, parsing=True)
    shown = capsys.readouterr().out
    assert "F1 of labelled brackets: 0.0 %; trees without an error: 0.0 %" in shown, "three steps teach nothing"
    lines = {path.name: path.read_text().count("\n") for path in (tmp_path / "corpus").iterdir()}
    assert lines == {"train.trees": 300, "validation.trees": 10, "test.trees": 12}


def test_exact_match_is_of_whole_sentences() -> None:
    """Catches a share of words, or of sources."""
    assert demo_module._exact(["a b", "c", "d"], ["a b", "c.", "d"]) == pytest.approx(200 / 3)
