"""The report of a run: complete, escaped, self-contained."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from samples import write_lines
from transformer.data.quality.examination import examine
from transformer.errors import BundleError, DataError
from transformer.evaluation.comparison import EvaluationSet, System, evaluate
from transformer.reporting import write_report
from transformer.reporting.charts import Series, bars, heat_map, line_chart, thin, ticks
from transformer.reporting.corpus_page import html_report
from transformer.reporting.evaluation import evaluation_page
from transformer.reporting.html import render_page
from transformer.reporting.record import read_record, translation_lines

HOSTILE = "<script>alert('x')</script> & \"quoted\" \x00\x1b ]]> <!-- \u202e"
VOID = {"meta", "link", "br", "hr"}


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails on a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the tag and its attributes."""
        self.tags.add(tag)
        self.attributes.extend((name, value or "") for name, value in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The innermost open tag is the one that ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """What a reader sees."""
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the tiny run, with hostile text wherever text comes from outside."""
    folder = shutil.copytree(tiny_run, tmp_path / "<b>run")
    texts = [(f"{HOSTILE} {n}", f"reference {n}") for n in range(23)]
    outputs = [f"reference {n}" if n != 7 else HOSTILE for n in range(23)]
    (folder / "translations.jsonl").write_text(translation_lines(texts, outputs), encoding="utf-8")
    with (folder / "recipe.toml").open("a") as file:
        file.write(f"# {HOSTILE}\n")
    return folder


def test_a_report_has_everything_and_runs_nothing(run: Path) -> None:
    """Catches corpus text that becomes markup, something loaded from elsewhere, and a section that is missing."""
    text = write_report(run).read_text(encoding="utf-8")
    reader = read(text)
    assert "script" not in reader.tags
    assert not reader.tags & {"img", "iframe", "link", "object", "audio", "video", "base", "form"}
    links = [value for name, value in reader.attributes if name in ("href", "src", "srcset", "action", "data")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?://", text)
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "alert('x')</script> & \"quoted\" \u2400\u241b ]]> <!--" in reader.text
    for heading in (
        "Curves",
        "Scores",
        "Translations",
        "Worst sentences",
        "Data",
        "Blocks",
        "Model",
        "Recipe",
        "Origin",
    ):
        assert heading in reader.text
    for needle in ("nrefs:1", "max_steps = 200", "torch version", "processor", "dropped: duplicate", "<b>run"):
        assert needle in reader.text
    assert {"svg", "polyline", "circle", "rect"} <= reader.tags


def test_a_report_shows_how_each_kind_of_change_is_read(run: Path) -> None:
    """Catches perplexities of another checkpoint than the best, and a drawing in a report without augmentation."""
    title = "perplexity on changed validation pairs, best checkpoint"
    assert title not in read(write_report(run).read_text(encoding="utf-8")).text
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["kind"] == "validation":
            row |= {"perplexity": row["step"] + 0.5, "perplexity_lower_case": row["step"] + 0.25}
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    best = read_record(run).best
    assert best is not None
    text = read(write_report(run).read_text(encoding="utf-8")).text.split(title)[1]
    assert re.search(rf"unchanged\s*{best['step']:,}\.5\s*lower case\s*{best['step']:,}\.2", text)


def test_worst_sentences_come_first_and_examples_are_spread(run: Path) -> None:
    """Catches a list of the best, and examples that are all from the start of the text."""
    reader = read(write_report(run).read_text(encoding="utf-8"))
    examples, worst = reader.text.split("Evenly spaced")[1].split("Those with the lowest chrF")
    assert re.findall(r"line (\d+)", worst)[0] == "8"
    lines = [int(line) for line in re.findall(r"line (\d+)", examples)]
    assert lines == [1, 3, 5, 7, 10, 12, 14, 17, 19, 21]
    assert read_record(run).sentences[0].score == pytest.approx(100.0)


def test_a_run_under_way_and_one_without_a_model(run: Path, tmp_path: Path) -> None:
    """Catches a report that only a finished run can have, and a last line cut short by a kill."""
    (run / "translations.jsonl").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    reader = read(write_report(run).read_text(encoding="utf-8"))
    assert "Worst sentences" not in reader.text
    (run / "metrics.jsonl").write_text("")
    assert "Curves" not in read(write_report(run).read_text(encoding="utf-8")).text
    with pytest.raises(BundleError, match="does not exist"):
        write_report(tmp_path / "nowhere")


def test_what_is_not_markup_is_escaped() -> None:
    """Catches an attribute or a text that becomes markup, a heading without content, and a forgotten value."""
    heading = '"><script>'
    sections = {heading: HOSTILE, "empty": "\n", "made": Markup("<b>x</b>")}
    page = read(render_page("report.html.jinja", title="<i>", opening=HOSTILE, sections=sections))
    assert not page.tags & {"script", "i"}
    assert "b" in page.tags
    assert page.text.count(HOSTILE.translate({0: "\u2400", 0x1B: "\u241b", 0x202E: r"\u202e"})) == 2
    assert [value for name, value in page.attributes if name == "href"] == [f"#{heading}", "#made"]
    assert read(bars('"><i>', {"<s>": 1})).tags == {"figure", "figcaption", "b", "svg", "text", "rect"}
    with pytest.raises(UndefinedError, match="title"):
        render_page("report.html.jinja")


def test_curves_are_where_their_values_are() -> None:
    """Catches an axis upside down, a lost point, and a flat or single value that divides by zero."""
    chart = line_chart("t", [Series("a", [(0.0, 0.0), (50.0, 5.0), (100.0, 10.0)], marked=True)])
    assert chart is not None
    places = re.search(r'points="([^"]+)"', chart)
    assert places is not None
    (x0, y0), (x1, y1), (x2, y2) = (map(float, place.split(",")) for place in places[1].split())
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2)
    assert y2 < y0
    assert chart.count("<circle") == 3
    assert line_chart("t", [Series("a", [])]) is None
    for points in ([(3.0, 2.0)], [(1.0, 0.0), (2.0, 0.0)], [(1.0, 1e-9), (2.0, 3e-9)]):
        assert "nan" not in str(line_chart("t", [Series("a", points)]))
    thinned = thin([(float(n), 2.0) for n in range(1601)])
    assert (len(thinned), thinned[-1]) == (321, (1600.0, 2.0))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3.2, 3.9), (0, 987_654), (-5, 5), (7, 7), (1e-6, 3e-4)])
def test_ticks_are_few_and_enclose(low: float, high: float) -> None:
    """Catches a curve outside its frame."""
    marks = ticks(low, high)
    assert marks[0] <= low + 1e-12
    assert marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 7


def test_heat_map_and_bars() -> None:
    """Catches a map of thousands of cells, a zero that has no logarithm, and bars of no counts at all."""
    columns = [(step, {"encoder.layers.0": 1e-3, "decoder.layers.0": 0.0}) for step in range(97)]
    assert str(heat_map("t", columns)).count("<rect") == 80
    assert heat_map("t", []) is None
    strong = re.findall(r'fill-opacity="([\d.]+)"', str(heat_map("t", [(1, {"a": 1e-1, "b": 1e-3, "c": 1e-9})])))
    assert [float(value) for value in strong] == [1.0, 0.5, 0.04]
    assert "nan" not in bars("t", {"a": 0})
    assert re.findall(r">([\d.,]+)<", str(bars("t", {"a": 1234.56, "b": 1234}))) == ["1,234.6", "1,234"]


def test_stored_translations_keep_their_lines(tmp_path: Path) -> None:
    """Catches a sentence split at U+2028."""
    lines = translation_lines([("a\u2028b", "c\x85d")], ["e\nf"])
    assert lines.count("\n") == 1
    assert json.loads(lines) == {"source": "a\u2028b", "reference": "c\x85d", "output": "e\nf"}


CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u061c\u200e\u200f\u2028\u2029",
            *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]  # fmt: skip
READABLE = "a\u00a0b c\u200dd\u200c\u3000é 🇩🇪 مرحبا"
"""Text with no-break and ideographic spaces, joiners and flags, which must stay as it is."""


def test_controls_and_direction_marks_are_escaped_in_every_page(tmp_path: Path) -> None:
    """Catches a page in which a mark of a translation turns the rest of the line, or a command reaches a terminal."""
    hostile = "".join(CONTROLS).replace("\n", "")
    test = EvaluationSet([hostile + READABLE], [["reference"]])
    page = evaluation_page(evaluate([System(f"{hostile}.de", [hostile])], test, samples=0), test)
    sides = [write_lines(tmp_path / f"{side}\u202e.txt", [f"{hostile}{word} \u202e{n}" for n in range(40)])
             for side, word in (("source", "one"), ("target", "eins"))]  # fmt: skip
    corpus_page = html_report(examine(*sides))
    for text in (page, corpus_page):
        assert not [hex(ord(char)) for char in text if char in CONTROLS and char not in "\t\n"]
        assert r"\u202e" in text
    assert READABLE in page
    assert "␀" in page


WRONG_LINES = {
    "metrics.jsonl": [
        '{"kind": "train", "step": "x"}', '{"kind": "train", "step": 1, "loss": [1]}', '{"step": 1}', "[]", "{",
        '{"kind": "blocks", "step": 1, "update_ratio": {"a": 1}}', '{"kind": "train", "step": 1, "loss": 1e999}',
        '{"kind": "validation", "step": 1, "bleu": {"a": 1}}',
    ],
    "translations.jsonl": ['{"source": 1, "reference": "a", "output": "b"}', '{"source": "a"}', "7"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in WRONG_LINES.items() for line in lines])
def test_a_line_that_training_does_not_write_is_named(tiny_run: Path, tmp_path: Path, name: str, line: str) -> None:
    """Catches a traceback at the end of a run because of a line that something else has changed."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    lines = (run / name).read_text(encoding="utf-8").splitlines()
    (run / name).write_text("\n".join([lines[0], line, *lines[1:]]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}, line 2: not a line that training writes; remove it"):
        write_report(run)


def test_a_norm_that_was_not_finite_is_shown(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a report that fails for a run with an infinite gradient, which is written as null."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    row = {"kind": "blocks", "step": 201}
    row |= {figure: {"encoder.norm": None} for figure in ("gradient_norm", "parameter_norm", "update_ratio")}
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        metrics.write(json.dumps(row) + "\n")
    assert "encoder.norm" in write_report(run).read_text(encoding="utf-8")


def test_the_last_step_need_not_be_logged(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a report that tells the last logged step, and a batch skipped before a step that never came."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    assert read_record(run).last_step == 200
    rows = [{"kind": "train", "step": 150, "loss": 1.0}, {"kind": "skipped", "step": 201, "reason": "x"}]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read_record(run).last_step == 200, "its newest checkpoint"
    shown = read(write_report(run).read_text(encoding="utf-8")).text
    assert re.search(r"200\s*steps", shown)
