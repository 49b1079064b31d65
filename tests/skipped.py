"""Names what a run of the tests left out, where nobody reads the log: in the summary of a GitHub workflow."""

from collections import Counter
from collections.abc import Iterable

import pytest


def skip_summary(reports: Iterable[pytest.TestReport], command: str) -> str:
    """Returns a table in Markdown of the reasons why tests were skipped, with their numbers; "" if none was.

    Args:
        reports: Reports of skipped tests.
        command: What was run.
    """
    reasons = Counter(_reason(report) for report in reports)
    if not reasons:
        return ""
    rows = "".join(f"| {count} | {reason} |\n" for reason, count in reasons.most_common())
    return f"\n**{reasons.total()} tests were skipped** by `{command}`:\n\n| tests | reason |\n|---|---|\n{rows}"


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").replace("|", "\\|")
