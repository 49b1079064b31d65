"""Texts of a run that were edited: which are named, and which may be allowed to differ."""

from pathlib import Path
from typing import Any

import pytest

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.errors import CheckpointError, ConfigError
from transformer.run.recipe import parse_recipe
from transformer.run.train import RunResult, train

KEY = "data.stages.last.validation_source"


def write_sides(folder: Path, name: str, first: int, last: int) -> tuple[str, str]:
    """Writes pairs of number words and digits; returns both paths."""
    pairs = digit_pairs(last)[first:]
    sides = [write_lines(folder / f"{name}.{side}", list(text)) for side, text in enumerate(zip(*pairs, strict=True))]
    return str(sides[0]), str(sides[1])


@pytest.mark.slow
def test_a_validation_text_of_a_stage_may_change(tmp_path: Path) -> None:
    """Catches a key that the message asks for and the option refuses, and a file that the message cannot name."""
    source, target = write_sides(tmp_path, "train", 0, 60)
    validation, references = write_sides(tmp_path, "domain", 60, 66)

    def run(steps: int, stage: str, *allowed: str) -> RunResult:
        recipe: dict[str, Any] = tiny_recipe((Path(source), Path(target)), save_every=1, max_steps=steps, decay_steps=9)
        stages = [{"name": "first", "steps": 1, "weights": [1]}, {"name": stage, "weights": [1]}]
        stages[1] |= {"validation_source": validation, "validation_target": references}
        recipe["data"] = {"source": source, "target": target, "validation_pairs": 5, "stages": stages}
        return train(parse_recipe(recipe), tmp_path / "run", quiet=True, allow_changed=allowed)

    run(2, "last")
    Path(validation).write_text(Path(validation).read_text(encoding="utf-8").upper(), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"other texts: {KEY} \\({validation}\\) changed"):
        run(3, "last")
    with pytest.raises(ConfigError, match="is not a key that can change"):
        run(3, "last", KEY, "data.stages.other.validation_source")
    assert run(3, "last", KEY).progress.step == 3
    sides = ("source", "target")
    renamed = [f"data.stages.{name}.validation_{side}" for name in ("last", "domain") for side in sides]
    assert run(4, "domain", "data.stages", *renamed).progress.step == 4
