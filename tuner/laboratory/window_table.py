"""Every window of every run as a table with a row each, for pandas, R or a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tuner.files.storage import write_atomically
from tuner.knobs import KnobSpace
from tuner.laboratory.agent_run import SHOWN, AgentRun

__all__ = ["write_windows"]

LEARNED = ("window", "level", "configuration", "cost", "learned")
JUDGED = ("rate", "exact_cost", "oracle_cost", "kept")


def write_windows(runs: Sequence[AgentRun], space: KnobSpace, path: Path) -> None:
    """Write a CSV: a heading, and a row for each window of each run.

    The columns are ``agent`` and ``seed`` of the run; ``window``, from 1 over all loads; the load ``level``;
    the number of the ``configuration`` that ran, and the value of each knob; the ``cost``, and whether the
    agent ``learned`` from it (1 or 0); the offered ``rate`` (requests/s); the ``exact_cost`` of the
    configuration, and that of the best one (``oracle_cost``); whether the SLO was ``kept`` (1 or 0); and what
    was measured, by the names of its quantities (s, requests/s, shares). What is not known is empty.

    Args:
        runs: In one environment.
        space: Its knobs.
        path: The file.

    Raises:
        StorageError: It cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["agent", "seed", *LEARNED, *space.names, *JUDGED, *SHOWN])
    for run in runs:
        writer.writerows(_rows(run, space))
    write_atomically(path, text.getvalue())


def _rows(run: AgentRun, space: KnobSpace) -> Iterator[list[object]]:
    decoded = {number: space.decode(number) for number in set(run.configuration.tolist())}
    judged = (run.rate, run.expected, run.best, run.kept)
    floats = np.column_stack([*judged, *(run.shown[name] for name in SHOWN)])
    for index, number in enumerate(run.configuration.tolist()):
        yield [
            run.spec.label,
            run.spec.seed,
            index + 1,
            int(run.level[index]),
            number,
            _cell(float(run.cost[index])),
            int(run.learned[index]),
            *(decoded[number][name] for name in space.names),
            *map(_cell, floats[index].tolist()),
        ]


def _cell(value: float) -> float | str:
    """Return a number as it is written; nothing for what is not known."""
    return round(value, 9) if np.isfinite(value) else ""
