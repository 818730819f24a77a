"""What a fit found, as one HTML file that opens anywhere."""

from gedikit.report.page import ReportData, render

__all__ = ["ReportData", "render"]
