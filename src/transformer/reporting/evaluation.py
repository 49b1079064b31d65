"""The evaluation report as one self-contained HTML page."""

from transformer.evaluation.comparison import Evaluation, EvaluationSet
from transformer.evaluation.scores import LOWER_IS_BETTER, Score
from transformer.reporting.html import Markup, element, join, table
from transformer.reporting.page import page

SIGNIFICANCE_LEVEL = 0.05


def evaluation_page(evaluation: Evaluation, test: EvaluationSet) -> str:
    """Renders scores with confidence intervals and tests, breakdowns and selected lines; all text is escaped."""
    parts = {
        "Scores": _scores(evaluation),
        "By length": _lengths(evaluation),
        "By frequency": _frequencies(evaluation),
        "Lines": _lines(evaluation, test),
    }
    cards = [
        element("div", element("b", f"{score.value:.2f}"), score.name, attributes={"class": "card"})
        for score in evaluation.scores[0]
    ]
    summary = f"{len(test.references[0]):,} lines; cards show {evaluation.systems[0].name}."
    opening = join(element("p", summary), element("div", *cards, attributes={"class": "cards"}))
    return page("Evaluation", opening, parts)


def _scores(evaluation: Evaluation) -> Markup:
    names = [score.name for score in evaluation.scores[0]]
    rows = [
        [system.name, *map(_with_interval, scores), str(empty)]
        for system, scores, empty in zip(evaluation.systems, evaluation.scores, evaluation.empty, strict=True)
    ]
    head = ["system", *(f"{name} (lower is better)" if name in LOWER_IS_BETTER else name for name in names), "empty"]
    explanation = element(
        "p",
        "± is half of the 95 % confidence interval (bootstrap). p is the probability that a difference to the "
        "first system of at least this size occurs by chance (paired bootstrap). "
        f"With p of {SIGNIFICANCE_LEVEL} or more, the difference is not significant.",
        attributes={"class": "soft"},
    )
    signatures = table({score.name: element("code", score.signature) for score in evaluation.scores[0]})
    return join(
        table(rows, head), explanation, element("p", "Signatures, without which scores cannot be compared:"), signatures
    )


def _with_interval(score: Score) -> str:
    interval = "" if score.interval is None else f" ± {score.interval:.2f}"
    return f"{score.value:.2f}{interval}" + ("" if score.p_value is None else f", p = {score.p_value:.3f}")


def _lengths(evaluation: Evaluation) -> Markup:
    head = [
        f"words of the {evaluation.length_of}",
        "lines",
        *(f"{system.name}: BLEU, chrF" for system in evaluation.systems),
    ]
    return table(
        [
            [bucket.name, f"{bucket.lines:,}", *map("{:.2f}, {:.2f}".format, bucket.bleu, bucket.chrf)]
            for bucket in evaluation.lengths
        ],
        head,
    )


def _frequencies(evaluation: Evaluation) -> Markup:
    head = ["words that occur", "in the reference", *(f"{system.name}: F1" for system in evaluation.systems)]
    rows = [
        [f"{bucket.name} times", f"{bucket.words:,}", *(f"{f1:.2f}" for f1 in bucket.f1)]
        for bucket in evaluation.frequencies
    ]
    return table(rows, head)


def _lines(evaluation: Evaluation, test: EvaluationSet) -> Markup:
    several = len(evaluation.systems) > 1
    text = "Lines on which the systems differ most by chrF." if several else "Lines with the lowest chrF."
    return join(
        element("p", text, attributes={"class": "soft"}),
        *(_line(evaluation, test, index) for index in range(len(evaluation.lines))),
    )


def _line(evaluation: Evaluation, test: EvaluationSet, index: int) -> Markup:
    line = evaluation.lines[index]
    texts = [] if test.sources is None else [(f"line {line.number:,}", test.sources[line.number - 1], None)]
    texts += [("reference", reference[line.number - 1], None) for reference in test.references]
    texts += [
        (f"{system.name}, chrF {chrf:.1f}", text, "output")
        for system, text, chrf in zip(evaluation.systems, line.translations, line.chrf, strict=True)
    ]
    cells = [
        join(element("small", name), element("span", text, attributes={"class": kind, "dir": "auto"}))
        for name, text, kind in texts
    ]
    return element("div", *cells, attributes={"class": "sentence"})
