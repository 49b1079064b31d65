"""Provenance of the models of a run, which their bundles record."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from typing import Any, Final

from transformer.data.source_text import SourceText
from transformer.run.plan import TrainingPlan
from transformer.run.task import Scores
from transformer.runtime.machine import machine
from transformer.training.monitoring.progress import Progress

PACKAGES: Final = ("transformer", "torch", "tokenizers", "sacrebleu")


def model_provenance(plan: TrainingPlan, progress: Progress, signatures: dict[str, str]) -> dict[str, Any]:
    """Returns the provenance of the model of a checkpoint.

    Args:
        plan: Plan of the run.
        progress: Progress at the checkpoint.
        signatures: Descriptions of how its scores were computed.
    """
    return {
        "recipe": plan.recipe.model_dump(exclude_none=True),
        **({"start": plan.origin} if plan.origin else {}),
        "data": plan.data.facts,
        "step": progress.step,
        "validation": {"step": progress.scored_step, **validation_figures(Scores(progress.scores, signatures))},
        **_source_facts(plan),
        "seconds": progress.seconds,
        "machine": {**machine(), "device": plan.backend.device.type},
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def validation_figures(scores: Scores) -> dict[str, Any]:
    """Returns the scores as JSON values, which have no NaN, and how they were computed."""
    finite = {name: value if isfinite(value) else None for name, value in scores.values.items()}
    return {"scores": finite, "signatures": scores.signatures}


def _source_facts(plan: TrainingPlan) -> dict[str, Any]:
    """Returns the provenance entries of the task; lengths and characters are those of pretraining, too."""
    facts, origin = dict(plan.data.provenance), plan.origin
    if "max_source_tokens" in facts:
        facts["max_source_tokens"] = max(facts["max_source_tokens"], origin.get("max_source_tokens", 0))
    if "source_text" in facts and origin:
        source_text = SourceText.from_dict(facts["source_text"])
        characters = (origin.get("source_text") or {}).get("characters")
        source_text.add_characters(None if characters is None else set(characters))
        facts["source_text"] = source_text.to_dict()
    return facts
