"""An evaluation as a page of HTML that loads nothing."""

from transformer.evaluation.comparison import Evaluation, EvaluationSet
from transformer.evaluation.scores import LOWER_IS_BETTER, Score
from transformer.reporting.html import Markup, element, join, table
from transformer.reporting.page import page

LIKELY_BY_CHANCE = 0.05


def evaluation_page(found: Evaluation, test: EvaluationSet) -> str:
    """One HTML file: scores with intervals and tests, breakdowns, telling lines; every text is escaped."""
    parts = {
        "Scores": _scores(found),
        "By length": _lengths(found),
        "By frequency": _frequencies(found),
        "Lines": _lines(found, test),
    }
    boxes = [
        element("div", element("b", f"{score.value:.2f}"), score.name, attributes={"class": "card"})
        for score in found.scores[0]
    ]
    say = f"{len(test.references[0]):,} lines; cards show {found.systems[0].name}."
    opening = join(element("p", say), element("div", *boxes, attributes={"class": "cards"}))
    return page("Evaluation", opening, parts)


def _scores(found: Evaluation) -> Markup:
    names = [score.name for score in found.scores[0]]
    rows = [
        [system.name, *map(_with_interval, scores), str(empty)]
        for system, scores, empty in zip(found.systems, found.scores, found.empty, strict=True)
    ]
    head = ["system", *(f"{name} (lower is better)" if name in LOWER_IS_BETTER else name for name in names), "empty"]
    say = element(
        "p",
        "± is half of the 95 % confidence interval (bootstrap). p is the probability of so large a difference to the "
        f"first system by chance (paired bootstrap); from {LIKELY_BY_CHANCE} on, do not call the systems different.",
        attributes={"class": "soft"},
    )
    signatures = table({score.name: element("code", score.signature) for score in found.scores[0]})
    return join(
        table(rows, head), say, element("p", "Signatures, without which scores cannot be compared:"), signatures
    )


def _with_interval(score: Score) -> str:
    interval = "" if score.interval is None else f" ± {score.interval:.2f}"
    return f"{score.value:.2f}{interval}" + ("" if score.p_value is None else f", p = {score.p_value:.3f}")


def _lengths(found: Evaluation) -> Markup:
    head = [f"words of the {found.length_of}", "lines", *(f"{system.name}: BLEU, chrF" for system in found.systems)]
    return table(
        [
            [each.name, f"{each.lines:,}", *(f"{b:.2f}, {c:.2f}" for b, c in zip(each.bleu, each.chrf, strict=True))]
            for each in found.lengths
        ],
        head,
    )


def _frequencies(found: Evaluation) -> Markup:
    head = ["words that occur", "in the reference", *(f"{system.name}: F1" for system in found.systems)]
    rows = [[f"{each.name} times", f"{each.words:,}", *(f"{f1:.2f}" for f1 in each.f1)] for each in found.frequencies]
    return table(rows, head)


def _lines(found: Evaluation, test: EvaluationSet) -> Markup:
    several = len(found.systems) > 1
    say = "Those on which the systems differ most by chrF." if several else "Those with the lowest chrF."
    return join(
        element("p", say, attributes={"class": "soft"}), *(_line(found, test, at) for at in range(len(found.lines)))
    )


def _line(found: Evaluation, test: EvaluationSet, at: int) -> Markup:
    line = found.lines[at]
    texts = [] if test.sources is None else [(f"line {line.number:,}", test.sources[line.number - 1], None)]
    texts += [("reference", reference[line.number - 1], None) for reference in test.references]
    texts += [
        (f"{system.name}, chrF {chrf:.1f}", text, "output")
        for system, text, chrf in zip(found.systems, line.translations, line.chrf, strict=True)
    ]
    cells = [
        join(element("small", name), element("span", text, attributes={"class": kind, "dir": "auto"}))
        for name, text, kind in texts
    ]
    return element("div", *cells, attributes={"class": "sentence"})
