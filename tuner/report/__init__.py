"""Reports of runs: data first (``report.json``), then one HTML page with its plots drawn from that data."""

from tuner.report.document import (
    LearnedCost,
    LevelReport,
    Report,
    Served,
    Server,
    WindowReport,
    served,
)

__all__ = ["LearnedCost", "LevelReport", "Report", "Served", "Server", "WindowReport", "served"]
