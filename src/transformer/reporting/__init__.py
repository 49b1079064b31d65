"""A run as one page to read: `report.html`, which needs no network and no program but a browser."""

from transformer.reporting.report import REPORT_FILE, write_report

__all__ = ["REPORT_FILE", "write_report"]
