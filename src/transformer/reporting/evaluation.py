"""The evaluation report as one self-contained HTML page."""

from transformer.evaluation.comparison import Evaluation, EvaluationSet
from transformer.evaluation.scores import LOWER_IS_BETTER
from transformer.reporting.html import render_page

SIGNIFICANCE_LEVEL = 0.05


def evaluation_page(evaluation: Evaluation, test: EvaluationSet) -> str:
    """Renders scores with confidence intervals and tests, breakdowns and selected lines; all text is escaped."""
    return render_page(
        "evaluation.html.jinja",
        title="Evaluation",
        evaluation=evaluation,
        test=test,
        figures={score.name: f"{score.value:.2f}" for score in evaluation.scores[0]},
        score_signatures={score.name: score.signature for score in evaluation.scores[0]},
        systems=list(zip(evaluation.systems, evaluation.scores, evaluation.empty, strict=True)),
        lower_is_better=LOWER_IS_BETTER,
        significance_level=SIGNIFICANCE_LEVEL,
    )
