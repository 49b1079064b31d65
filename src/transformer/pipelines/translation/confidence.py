"""Confidence: the expected chrF of a translation over 100, from what a search knows about it.

The estimate is a logistic model of a few features, fitted to lines with references, see `calibration`. It is applied
after the last stage of a translation, and adds to flags alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from transformer.decoding import Search
from transformer.errors import BundleError
from transformer.pipelines.translation.results import UNSURE, Translation

if TYPE_CHECKING:
    from transformer.pipelines.translation.checks import CheckedLine

GOOD: Final = 0.3
"""chrF over 100 from which a translation counts as good."""
MAX_FALSE_ALARMS: Final = 0.035
"""Maximum share of the good translations of held-out lines that is flagged, so that of other lines it is below 5 %."""
MAX_THRESHOLD: Final = 0.4
"""Confidence from which no translation is unsure, however good the others are."""
RIDGE: Final = 1.0
"""Penalty of the squared weights of standardized features, in lines."""
MAX_STEPS: Final = 50
"""Maximum number of Newton steps; fewer than 10 are needed."""


@dataclass(frozen=True)
class ConfidenceModel:
    """Expected chrF of translations, for one precision and one kind of search.

    Attributes:
        weights: The intercept, then the weight of each feature, see `features_of`.
        threshold: Confidence below which a translation is unsure.
        lines: Number of lines that it was fitted to.
        auc: Probability that a good one of these lines has a higher confidence than another; None if all are alike.
    """

    weights: tuple[float, ...]
    threshold: float
    lines: int = 0
    auc: float | None = None

    def confidence(self, features: Sequence[float]) -> float:
        """Returns the confidence in a translation, from 0 to 1, rounded to three digits."""
        logit = self.weights[0] + sum([w * x for w, x in zip(self.weights[1:], features, strict=True)])
        return round(1 / (1 + math.exp(-max(-30.0, min(30.0, logit)))), 3)


@dataclass(frozen=True)
class Calibration:
    """The confidence models of a model folder.

    Attributes:
        models: Model of each precision and kind of search, e.g. "int8 beam"; none if the folder was not calibrated.
        precision: Precision of the translator.
    """

    models: Mapping[str, ConfidenceModel] = field(default_factory=dict[str, ConfidenceModel])
    precision: str = ""

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], precision: str) -> "Calibration":
        """Creates the calibration from JSON values.

        Args:
            entries: Values of `to_dict`.
            precision: Precision of the translator.

        Raises:
            BundleError: The values are not those of `ConfidenceModel`.
        """
        try:
            models = {
                name: ConfidenceModel(
                    tuple(map(float, entry["weights"])), float(entry["threshold"]), entry["lines"], entry["auc"]
                )
                for name, entry in entries.items()
            }
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError("the calibration is of another version; run transformer calibrate") from error
        return cls(models, precision)

    def to_dict(self) -> dict[str, Any]:
        """Returns the models as JSON values."""
        return {name: asdict(model) for name, model in self.models.items()}

    def model_for(self, search: Search) -> ConfidenceModel | None:
        """Returns the model for a search; that of another precision if its own was not fitted.

        The log-probabilities of samples depend on how they are drawn, so there is none for them.
        """
        if search.sampling is not None:
            return None
        kind = kind_of(search)
        others = (model for name, model in sorted(self.models.items()) if name.endswith(f" {kind}"))
        return self.models.get(f"{self.precision} {kind}") or next(others, None)


def kind_of(search: Search) -> str:
    """Returns the kind of a search, which decides how probable its translations are."""
    return "greedy" if search.beam == 1 else "beam"


def features_of(checked: "CheckedLine") -> tuple[float, ...]:
    """Returns the features of a translation of a line that has words.

    They are the geometric mean of the probabilities of its tokens, and the logarithm of the number of source tokens.
    Three more tell what is unusual: source tokens per word (those of rare words are short), whether characters were
    never seen in training, and the absolute logarithm of the ratio of the lengths of translation and source.
    """
    best = [part.best for part in checked.searched]
    n_source = sum([len(part.segment.tokens) for part in checked.searched])
    n_target = sum([max(1, hypothesis.length) for hypothesis in best])
    score = sum([hypothesis.score for hypothesis in best])
    return (
        math.exp(score / n_target),
        math.log(n_source),
        n_source / max(1, len(checked.line.text.split())),
        float(bool(checked.line.unseen)),
        abs(math.log(n_target / n_source)),
    )


def with_confidence(checked: "CheckedLine", model: ConfidenceModel | None) -> Translation:
    """Returns the translation of a line with its confidence, flagged if it is unsure.

    A line that is copied because it has nothing to translate has a confidence of 1, and one that is copied because it
    is too long, 0.
    """
    translation = checked.translation
    if model is None or (not translation.text and not checked.searched):
        return translation
    if checked.line.is_copied:
        return replace(translation, confidence=float(translation.is_copied))
    confidence = model.confidence(features_of(checked))
    flags = (*translation.flags, *([f"{UNSURE}{confidence:.2f})"] if confidence < model.threshold else []))
    return replace(translation, flags=flags, confidence=confidence)


def fit_confidence(
    features: NDArray[np.float64], chrf: NDArray[np.float64], is_plain: NDArray[np.bool_]
) -> ConfidenceModel:
    """Fits the expected chrF by logistic regression on fractions, and chooses the threshold.

    The threshold is the highest one up to `MAX_THRESHOLD` that flags at most `MAX_FALSE_ALARMS` of the good
    translations of plain lines.

    Args:
        features: Features of each line, (N, F).
        chrf: chrF over 100 of each translation, (N,).
        is_plain: Whether each line is as it was given, not a spoiled copy, (N,).

    Source: Papke and Wooldridge 1996, "Econometric Methods for Fractional Response Variables".
    """
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    inputs = np.column_stack([np.ones(len(features)), (features - mean) / scale])
    penalty = RIDGE * np.diag([0.0, *np.ones(features.shape[1])])
    weights = np.zeros(inputs.shape[1])
    for _ in range(MAX_STEPS):
        expected = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (expected - chrf) + penalty @ weights
        hessian = inputs.T @ (inputs * (expected * (1 - expected))[:, None]) + penalty
        step = np.linalg.solve(hessian, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    slopes = weights[1:] / scale
    model = ConfidenceModel((float(weights[0] - slopes @ mean), *map(float, slopes)), 0.0, len(features))
    confidences = np.array([model.confidence(tuple(row)) for row in features])
    good = np.sort(confidences[is_plain & (chrf >= GOOD)])
    threshold = min(MAX_THRESHOLD, float(good[int(MAX_FALSE_ALARMS * len(good))])) if len(good) else MAX_THRESHOLD
    return replace(model, threshold=threshold, auc=area_under_curve(confidences, chrf >= GOOD))


def area_under_curve(scores: NDArray[np.float64], is_positive: NDArray[np.bool_]) -> float | None:
    """Returns the probability that a positive example scores higher than a negative one, with ties counted half.

    Args:
        scores: Scores, (N,).
        is_positive: Labels, (N,).

    Returns:
        The area under the ROC curve, from the ranks; None if the labels are all alike.
    """
    n_positive = int(is_positive.sum())
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    _, index, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[index]
    return float((ranks[is_positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))
