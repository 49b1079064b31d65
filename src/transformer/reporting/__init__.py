"""Reports: a run or an evaluation as one self-contained HTML page, readable in any browser without network."""

from transformer.reporting.report import REPORT_FILE, write_report

__all__ = ["REPORT_FILE", "write_report"]
