"""The recipe's tables `[[data.stages]]`: what is refused, and why."""

from pathlib import Path
from typing import Any

import pytest

from transformer.data.config import DataConfig
from transformer.errors import ConfigError
from transformer.run.recipe import load_recipe, parse_recipe

FILES = {"source": ["a.en", "b.en"], "target": ["a.de", "b.de"]}
FIRST, LAST = {"name": "first", "share": 0.8, "weights": [1, 0]}, {"name": "last", "weights": [0.2, 1]}


def data_of(*stages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"data": {**FILES, "stages": list(stages), **keys}}


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{**FIRST, "weights": [1]}, LAST], "first has 1 weight for 2 files; give one for each"),
        ([{**FIRST, "weights": [0, 0]}, LAST], "first has no weight above 0"),
        ([{**FIRST, "name": "last"}, LAST], "last is the name of two stages"),
        ([{"name": "first", "weights": [1, 0]}, LAST], "first has no length; give share or steps"),
        ([{**FIRST, "steps": 5}, LAST], "first has share and steps; give one of them"),
        ([FIRST, {**LAST, "share": 0.3}], "last is the last stage and takes the rest of the run"),
        ([FIRST, {**LAST, "steps": 3}], "last is the last stage and takes the rest of the run"),
        ([FIRST, {**FIRST, "name": "second", "share": 0.2}, LAST], "shares of 1 leave nothing to the last stage"),
        ([FIRST, {**LAST, "validation_source": "v.en"}], "last has one side of a validation text"),
        (
            [{**FIRST, "name": "general", "validation_source": "v", "validation_target": "w"}, LAST],
            "general has the name",
        ),
        ([{**FIRST, "name": "perplexity"}, LAST], "perplexity is the name of a score"),
        ([{**FIRST, "name": "a/b"}, LAST], "data.stages.0.name='a/b' must be"),
        ([{**FIRST, "weights": [1, -1]}, LAST], "data.stages.0.weights.1=-1 must be"),
        ([{**FIRST, "share": 1.5}, LAST], "data.stages.0.share=1.5 must be"),
        ([{**FIRST, "weight": [1, 0]}, LAST], "data.stages.0.weight"),
        ([], "data.stages"),
    ],
)
def test_stages_that_do_not_fit(stages: list[dict[str, Any]], message: str) -> None:
    """Catches a stage that fails after hours, or whose mistake the message does not name."""
    with pytest.raises(ConfigError) as error:
        parse_recipe(data_of(*stages))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_stages_replace_weights() -> None:
    """Catches weights that are ignored."""
    with pytest.raises(ConfigError, match=r"data.weights and data.stages both weight the files"):
        parse_recipe(data_of(FIRST, LAST, weights=[1, 2]))


def test_the_last_share_may_be_stated() -> None:
    """Catches shares that are refused although they add up to one."""
    assert parse_recipe(data_of({**FIRST, "share": 0.7}, {**LAST, "share": 0.3}))


def test_tables_are_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches variables that are not expanded in tables, and a recipe that cannot be read again."""
    monkeypatch.setenv("TEXTS", "/texts")
    path = tmp_path / "recipe.toml"
    path.write_text(
        """
[data]
source = ["a.en", "b.en"]
target = ["a.de", "b.de"]
[[data.stages]]
name = "first"
steps = 80
weights = [1, 0]
[[data.stages]]
name = "last"
weights = [0.2, 1]
validation_source = "${TEXTS}/v.en"
validation_target = "v.de"
"""
    )
    recipe = load_recipe(path)
    assert isinstance(recipe.data, DataConfig)
    assert recipe.data.stages is not None
    first, last = recipe.data.stages
    assert (first.steps, first.weights, last.weights) == (80, (1, 0), (0.2, 1))
    assert last.validation_source == "/texts/v.en"
    path.write_text(recipe.to_toml())
    assert load_recipe(path).model_dump() == recipe.model_dump()
