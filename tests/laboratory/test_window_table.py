"""Every window of every run as a table."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from tests.laboratory.agent_runs import made_run
from tuner.knobs import Knob, KnobSpace
from tuner.laboratory.window_table import write_windows

SPACE = KnobSpace(
    [
        Knob(name="max_batch_size", grid=(1, 4, 16), default=1),
        Knob(name="max_queue_delay", grid=(0, 0.005), default=0, unit="s"),
    ]
)


def test_each_window_of_each_run_is_a_row(tmp_path: Path) -> None:
    """With its run, its configuration as number and as values, and what it cost; the unknown is empty."""
    numbers = np.array([0, 5, 1])
    first = made_run(agent="rrl", seed=3, configuration=numbers, cost=np.array([0.5, math.nan, 2.0]))
    other = made_run(agent="tpe", seed=4, configuration=numbers, learned=np.array([True, False, True]))

    write_windows([first, other], SPACE, tmp_path / "windows.csv")

    with (tmp_path / "windows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["agent"], row["seed"], row["window"]) for row in rows] == [
        ("rrl", "3", "1"), ("rrl", "3", "2"), ("rrl", "3", "3"),
        ("tpe", "4", "1"), ("tpe", "4", "2"), ("tpe", "4", "3"),
    ]  # fmt: skip
    assert [row["cost"] for row in rows[:3]] == ["0.5", "", "2.0"]
    assert [row["learned"] for row in rows[3:]] == ["1", "0", "1"]
    values = [(row["configuration"], row["max_batch_size"], row["max_queue_delay"]) for row in rows[:2]]
    assert [tuple(map(float, row)) for row in values] == [(0, 1, 0), (5, 16, 0.005)]
    assert {"rate", "exact_cost", "oracle_cost", "kept", "mean", "p50", "p95", "p99", "cpu"} <= set(rows[0])
