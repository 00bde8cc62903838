"""The soak: how clients judge, how memory is compared, and lives in virtual time."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.experiments.daemon import clients as clients_module
from tuner.experiments.daemon import hindsight
from tuner.experiments.daemon.clients import Clients, SloShare, load_until_it_breaks
from tuner.experiments.daemon.lives import Life
from tuner.experiments.daemon.memory import growth, sampled
from tuner.experiments.daemon.servers import TRITON
from tuner.experiments.daemon.soak import compared


def judged(latency: list[float], failed: int = 0) -> SloShare:
    """What clients count of a window with these latencies."""
    sample = SimpleNamespace(intended=np.zeros(len(latency)), latency=np.array(latency), failed=failed)
    clients = Clients(kept=TRITON, load=SimpleNamespace(sample=lambda begin, end: sample))  # type: ignore[arg-type]
    clients.judge(0.0)
    return clients.share


@pytest.mark.parametrize(
    ("latency", "failed", "kept"),
    [([0.01, 0.02], 0, 1), ([0.01, 0.2], 0, 0), ([0.01, np.nan], 1, 0), ([], 0, 0)],
)
def test_a_window_is_kept_if_the_mean_is_and_nothing_failed(
    latency: list[float], failed: int, kept: int
) -> None:
    """One without an answer is not."""
    share = judged(latency, failed)

    assert (share.kept, share.windows, share.failed, share.sent) == (kept, 1, failed, len(latency))


def test_growth_is_from_the_warm_up_to_the_end() -> None:
    """What is needed at first does not count."""
    assert growth([1.0] * 25 + [100.0] * 65 + [110.0] * 10) == pytest.approx(10.0)
    with sampled() as seen:
        pass
    assert seen[-1] > 10


def test_the_daemon_is_compared_with_the_default_and_the_best_that_stood_still() -> None:
    """Both over the turns before and after it; failures are counted."""
    default = SloShare(kept=5, windows=10) + SloShare(kept=5, windows=10)
    best = SloShare(kept=9, windows=10, sent=50) + SloShare(kept=18, windows=20, sent=100)
    share = SloShare(kept=89, windows=100, sent=1000)

    rows = compared(TRITON, share, default=default, best=best, which=TRITON.statics[1])

    assert (best.windows, best.sent) == (30, 150)
    assert [(row.published, row.measured) for row in rows] == [(88.0, 89.0), (50.0, 89.0), (0, 0)]
    assert "max_batch_size 4" in rows[0].note


def test_hindsight_sets_the_daemon_beside_what_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per load three rows; the default is the first of the grid."""
    lives = [Life(np.full(80, 100.0), np.arange(80) > 7)] * 4
    monkeypatch.setattr(hindsight, "keep_simulated", lambda targets, windows: lives)
    monkeypatch.setattr(hindsight, "attainment", lambda task: 50.0 if task.configuration else 99.0)

    result = quick(hindsight.Hindsight).run()

    assert [row.measured for row in result.rows[:3]] == [90.0, 100.0, 99.0]
    assert result.rows[0].published == 97.0


def test_what_stands_still_is_measured() -> None:
    """The default keeps a light load, and breaks under a heavy one."""
    light, heavy = (hindsight.ChangingLoad(load, load) for load in (20.0, 900.0))

    assert hindsight.attainment(hindsight.StandingStill(light, 0, 4)) == 100.0
    assert hindsight.attainment(hindsight.StandingStill(heavy, 0, 2)) == 0.0


def test_the_load_turns_in_the_middle_of_a_turn() -> None:
    """Long enough for what changes take beside the windows."""
    url = hindsight.ChangingLoad(10.0, 30.0, window=1.0, turn=4).url(4, 7)

    assert url == "sim://mlp?rate=0:10,2:30,4:10,6:30&seed=7"


def test_the_load_is_raised_until_the_slo_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In coarse steps from half the server's own, then in fine ones from the last that was borne; it is left
    with its low load, and has it between the steps."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    rates: list[float] = []
    said: list[str] = []

    def sample(begin: float, end: float) -> SimpleNamespace:
        latency = 0.01 if rates[-1] < 100 else 2 * clients_module.SLO
        return SimpleNamespace(intended=np.zeros(9), latency=np.full(9, latency), failed=0)

    clients = Clients(kept=TRITON, load=SimpleNamespace(sample=sample, set_rate=rates.append))  # type: ignore[arg-type]
    load_until_it_breaks([clients], said.append)

    low = TRITON.rates[0]
    assert rates[0] == rates[-1] == low
    assert [rate for rate in rates if rate != low] == [75, 86, 99, 114, 99, 104]
    assert clients.rates == (low, 104)
    assert "104 requests/s, 0 % kept" in said[-1]
