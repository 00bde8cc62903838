"""The tuner in charge of a dispatcher: its real adapter, and servers that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.dispatch.running import Running, target_of
from tests.command_line import Say, run, tuner
from tests.control.daemon.daemon_bed import Bed
from tuner.report import Report

__all__ = ["run", "tuner"]

pytestmark = pytest.mark.slow
WAITING = 0.3
"""The SLO of a session whose batches wait as long as they can, s."""
SLO = "p95=100ms"


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running(slo=WAITING, deferral=1.0)
    with found.loaded(60):
        yield found
    found.stop()


@pytest.fixture
def target(running: Running, tmp_path: Path) -> str:
    return target_of(running, tmp_path)


def test_a_run_brings_the_scheduler_within_the_slo(tuner: Say, target: str) -> None:
    """Batches that wait too long are noticed, and wait less later; other tests may disturb many windows."""
    tuner("run", target, "--slo", SLO, "--windows", "20", "--window", "1s", "--out", "r", "--seed", "1")

    windows = Report.load(Path("r") / "report.json").windows
    assert not windows[0].slo_kept
    assert any(window.slo_kept for window in windows if window.configuration != windows[0].configuration)


def test_the_daemon_tunes_a_dispatcher(target: str, tmp_path: Path) -> None:
    """It is a target like a server: windows, decisions and its configuration are in the history."""
    bed = Bed(tmp_path / "daemon")
    bed.folder.mkdir()
    bed.path.write_text(
        f"state: s.db\ntargets:\n  - {{name: a, url: '{target}', slo: {SLO}, mode: apply, window: 1s}}\n"
    )

    for _ in range(5):  # other tests may disturb many windows
        bed.run(8)
        if applied := bed.rows("SELECT * FROM decision WHERE outcome = 'applied'"):
            break

    assert len(bed.rows("SELECT * FROM window")) % 8 == 0
    assert applied
