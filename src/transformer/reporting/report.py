"""The report of a run, `report.html`."""

from pathlib import Path
from typing import Final

from transformer.reporting import sections
from transformer.reporting.page import page
from transformer.reporting.record import read_record

REPORT_FILE: Final = "report.html"


def write_report(run: Path) -> Path:
    """Writes `RUN/report.html` from the contents of the run folder, also while the run is in progress.

    The page is self-contained: charts are inline SVG, and all text is escaped.

    Returns:
        Path of the page.

    Raises:
        BundleError: The run does not have a model yet.
    """
    record = read_record(run)
    parts = {
        "Curves": sections.curves(record),
        "Scores": sections.scores(record),
        "Translations": sections.translations(record),
        "Worst sentences": sections.worst(record),
        "Data": sections.data(record),
        "Blocks": sections.blocks(record),
        "Model": sections.model(record),
        "Recipe": sections.recipe(record),
        "Origin": sections.origin(record),
    }
    path = run / REPORT_FILE
    path.write_text(page(record.name, sections.cards(record), parts), encoding="utf-8")
    return path
