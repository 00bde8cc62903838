"""The daemon under faults: which there are, how they are judged, and some of them for real."""

from __future__ import annotations

import math

import pytest

from tuner.experiments.daemon import faults, keeper
from tuner.experiments.daemon.faults import FaultOutcome, Task, suffer, summary
from tuner.experiments.daemon.kinds import KINDS
from tuner.experiments.frame.options import Options


def verdict(**changes):
    values = {
        "kind": KINDS[0].name, "seed": 0, "form": "away for 1 s", "windows": 2.0, "serving": True,
        "left": "the last good configuration", "traceback": False, "failures": 3,
    }  # fmt: skip
    return FaultOutcome(**values | changes)


def test_there_are_enough_kinds():
    """Twelve were asked for, and each has a name of its own."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 12


@pytest.mark.parametrize(
    "bad", [{"windows": 3.1}, {"windows": math.inf}, {"serving": False}, {"left": ""}, {"traceback": True}]
)
def test_everything_must_be_as_it_must_be(bad):
    """Clients served, a configuration that somebody can explain, no traceback, and soon."""
    assert verdict().passed
    assert not verdict(**bad).passed


def test_rows_tell_each_kind_and_the_sum():
    """What was never injected is said, and what never recovered counts as the longest."""
    rows = {
        row.id: row
        for row in summary([verdict(), verdict(windows=math.inf), verdict(left="apply: exploring", seed=2)])
    }

    first = rows[KINDS[0].name]
    assert (first.published, first.measured, first.high) == (3.0, 2.0, None)
    assert "3 of 3 serving, 2 with the last good configuration, 1 with a stated reason" in first.note
    assert rows[KINDS[1].name].note == "not injected"
    assert rows["faults after which everything was as it must be"].measured == 2


def test_each_seed_suffers_every_kind(tmp_path, monkeypatch):
    """And all that was seen is kept."""
    monkeypatch.setattr(
        faults, "suffer", lambda task: [verdict(kind=kind.name, seed=task.seed) for kind in KINDS]
    )

    result = faults.run(Options(seeds=2, quick=True, folder=tmp_path, report=print, workers=1))

    assert len(result.details["faults"]) == 2 * len(KINDS)
    assert {row.measured for row in result.rows[:-1]} == {2.0}
    assert result.rows[-1].measured == result.rows[-1].published == 2 * len(KINDS)


def test_the_time_of_day_can_jump(tmp_path, monkeypatch):
    """By what stands in the file, if anything sensible does."""
    monkeypatch.setattr(keeper.time, "time", lambda: 1000.0)
    now = keeper.jumping(tmp_path / "clock")

    assert now() == 1000.0
    (tmp_path / "clock").write_text("-60")
    assert now() == 940.0
    (tmp_path / "clock").write_text("soon")
    assert now() == 1000.0


@pytest.mark.triton
@pytest.mark.slow
def test_a_live_server_and_a_live_daemon():
    """Three kinds that need all of the bed: afterwards clients are served, and the daemon knows why."""
    chosen = ("server killed and restarted", "kill -9 in the middle of an apply", "garbage metrics")

    verdicts = suffer(Task(seed=1, window=2.0, kinds=chosen))

    assert {v.kind for v in verdicts} == set(chosen)
    assert all(v.serving and v.left and not v.traceback and math.isfinite(v.windows) for v in verdicts)
