"""The whole command line: the commands of the tuner, and those of the packages above :mod:`tuner.cli`.

:mod:`tuner.cli` has the commands of the tuner itself and knows nothing of the experiments, which use it. What
is built upon the command line joins it here.
"""

from __future__ import annotations

from tuner.cli.app import add, app, main
from tuner.experiments.benchmarks.command import bench
from tuner.experiments.command import app as experiment

__all__ = ["app", "main"]

MEASURE = "Measure again what the documentation quotes"
add(bench, panel=MEASURE)
app.add_typer(experiment, name="experiment", rich_help_panel=MEASURE)
