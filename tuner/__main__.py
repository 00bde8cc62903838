"""The ``tuner`` command: the command line, and the commands of the packages above it.

:mod:`tuner.cli` has the commands of the tuner itself and knows nothing of the experiments, which use it. What
is built upon the command line joins it here.
"""

from __future__ import annotations

import signal
import sys

if sys.argv[1:2] == ["daemon"]:  # before the imports below, which take long enough for a SIGHUP to come
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing is lost: the daemon has not read its file yet

from tuner.cli.app import add, app, main
from tuner.experiments.benchmarks.command import bench
from tuner.experiments.command import app as experiment

__all__ = ["app", "main"]

add(bench)
app.add_typer(experiment, name="experiment")

if __name__ == "__main__":
    main()
