"""The daemon under faults: which there are, how they are judged, and some of them for real."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.quick import quick
from tuner.experiments.daemon import faults, keeper
from tuner.experiments.daemon.faults import DaemonFaults, FaultOutcome, suffer, summary
from tuner.experiments.daemon.kinds import KINDS


def verdict(**changes: Any) -> FaultOutcome:
    values: dict[str, Any] = {
        "kind": KINDS[0].name, "seed": 0, "form": "away for 1 s", "windows": 2.0, "serving": True,
        "left": "the last good configuration", "traceback": False, "broken": "", "failures": 3,
    }  # fmt: skip
    return FaultOutcome(**values | changes)


def test_there_are_enough_kinds() -> None:
    """Each has a name of its own, and says what is promised."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 24
    assert all(kind.promise for kind in KINDS)


@pytest.mark.parametrize(
    "bad",
    [
        {"windows": 3.1},
        {"windows": math.inf},
        {"serving": False},
        {"left": ""},
        {"traceback": True},
        {"broken": "x"},
    ],
)
def test_everything_must_be_as_it_must_be(bad: dict[str, Any]) -> None:
    """Clients served, a configuration that somebody can explain, no traceback, and soon."""
    assert verdict().passed
    assert not verdict(**bad).passed


def test_rows_show_each_kind_and_the_sum() -> None:
    """What was never injected is said, and what never recovered counts as the longest."""
    rows = {
        row.id: row
        for row in summary([verdict(), verdict(windows=math.inf), verdict(left="apply: exploring", seed=2)])
    }

    first = rows[KINDS[0].name]
    assert (first.published, first.measured, first.high) == (3.0, 2.0, None)
    assert "3 of 3 serving, 2 with the last good configuration, 1 with a stated reason" in first.note
    assert first.note.startswith(f"promised: {KINDS[0].promise} (3 of 3)")
    assert rows[KINDS[1].name].note == f"promised: {KINDS[1].promise}; not injected"
    assert rows["faults after which everything was as it must be"].measured == 2


def test_each_seed_suffers_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all that was seen is kept."""
    monkeypatch.setattr(
        faults, "suffer", lambda seed, window, kinds: [verdict(kind=kind.name, seed=seed) for kind in kinds]
    )

    result = quick(DaemonFaults, seeds=2).run()

    assert len(result.details["faults"]) == 2 * len(KINDS)
    assert {row.measured for row in result.rows[:-1]} == {2.0}
    assert result.rows[-1].measured == result.rows[-1].published == 2 * len(KINDS)


def test_the_time_of_day_can_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what stands in the file, if anything sensible does."""
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    now = keeper.jumping(tmp_path / "clock")

    assert now() == 1000.0
    (tmp_path / "clock").write_text("-60")
    assert now() == 940.0
    (tmp_path / "clock").write_text("soon")
    assert now() == 1000.0


@pytest.mark.alone
@pytest.mark.triton
@pytest.mark.slow
def test_a_live_server_and_a_live_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kinds that need all of the bed: afterwards clients are served, and the daemon knows why."""
    monkeypatch.setattr(faults, "LONGEST", 120.0)  # short windows, on a machine that may be busy
    chosen = ("server killed and restarted", "kill -9 in the middle of an apply", "garbage metrics")

    verdicts = suffer(1, 1.0, [kind for kind in KINDS if kind.name in chosen])

    assert {v.kind for v in verdicts} == set(chosen)
    assert all(v.serving and v.left and not v.traceback and math.isfinite(v.windows) for v in verdicts)
