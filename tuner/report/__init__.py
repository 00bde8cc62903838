"""Reports of runs: data first (``report.json``), then one HTML page with its plots drawn from that data."""

from tuner.report.document import Report, Served, WindowReport

__all__ = ["Report", "Served", "WindowReport"]
