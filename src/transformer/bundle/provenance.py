"""The record of a model's origin, as far as the program reads it again."""

from pathlib import PurePath

from pydantic import ConfigDict, Field

from transformer.config import Config, JsonObject


class _Entry(Config):
    """A part of the record; entries that no part of the program reads may hold anything."""

    model_config = ConfigDict(extra="allow", strict=True)


class Validation(_Entry):
    """Scores on the validation text; a score is None if it was not finite."""

    step: int | None = None
    score: float | None = None
    scores: dict[str, float | None] = Field(default_factory=dict)
    signatures: dict[str, str] = Field(default_factory=dict)


class AveragedModel(_Entry):
    """A model that was averaged."""

    step: int | None
    model: str
    sha256: str | None


class PretrainedModel(_Entry):
    """The model that a run fine-tuned."""

    model: str
    sha256: str | None
    max_source_tokens: int = Field(default=0, ge=0)


class DataCounts(_Entry):
    """Numbers of examples."""

    kept: int = 0
    held_out: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)


class TrainingRecord(_Entry):
    """The training section of the recipe."""

    best_metric: str = "bleu"
    learning_rate: float | None = Field(default=None, gt=0)
    warmup_steps: int | None = Field(default=None, ge=0)


class RecipeRecord(_Entry):
    """The recipe of the run."""

    tokenizer: dict[str, object] = Field(default_factory=dict)
    training: TrainingRecord = TrainingRecord()


class Provenance(_Entry):
    """Types of the entries that the program reads; a bundle keeps all of them as they are."""

    max_source_tokens: int = Field(default=0, ge=0)
    step: int = Field(default=0, ge=0)
    seconds: float = Field(default=0, ge=0)
    created: str = ""
    validation: Validation = Validation()
    averaged: list[AveragedModel] = Field(default_factory=list)
    start: PretrainedModel | None = None
    recipe: RecipeRecord = RecipeRecord()
    data: DataCounts = DataCounts()
    machine: dict[str, object] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    languages: dict[str, object] = Field(default_factory=dict)
    imported: dict[str, object] = Field(default_factory=dict)


def without_folders(provenance: JsonObject) -> dict[str, object]:
    """Returns a record in which data files have names and no absolute folders.

    A model that is passed on should not show where its training text lay on the machine of its author.

    Args:
        provenance: The record, which is left as it is.
    """
    recipe, data = dict(provenance.get("recipe") or {}), dict(provenance.get("data") or {})
    if "data" in recipe:
        recipe["data"] = _names(recipe["data"])
    if "files" in data:
        data["files"] = _names(data["files"])
    changed = {"recipe": recipe, "data": data}
    return {**provenance, **{key: value for key, value in changed.items() if key in provenance}}


def _names(value: object) -> object:
    if isinstance(value, dict):
        return {key: _names(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_names(entry) for entry in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value
