"""Table 4 and Figures 8 to 10: the scenarios are those of the paper, and the sums are right."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.cluster import simulate
from tuner.experiments.symphony import fig10
from tuner.experiments.symphony.clusters.two_models import SYSTEMS, Alone, panel_name, scenario
from tuner.experiments.symphony.fig8 import BatchSizes, share_in_batches_of
from tuner.experiments.symphony.fig9 import QueueingDelays, delays
from tuner.experiments.symphony.fig10 import FlatTop, LoadCurve, ideal_bad, ideal_idle, off_the_top
from tuner.experiments.symphony.table4 import GoodputAndBatch, TwoModelGoodput
from tuner.experiments.zoo import TABLE_4
from tuner.scheduling.log import ARRIVE, ENTRY, REFUSE, SEND


def test_the_scenarios_are_those_of_table_4() -> None:
    """8 accelerators, the SLO of the model, the allowances of the authors, at the ideal rate."""
    tasks = quick(TwoModelGoodput).tasks()

    assert len(set(tasks)) == len(tasks) == 2 * len(SYSTEMS)
    made = scenario(Alone("InceptionResNetV2", "nexus, 8 frontends"), 1083, 1)
    assert (made.accelerators, made.policy, made.frontends, made.seconds) == (8, "nexus", 8, 1.0)
    assert (made.sessions[0].slo_ms, made.sessions[0].rate, made.seed) == (70, 1083, 1)
    allowed = made.network.allowed()
    assert (allowed.control, allowed.data, allowed.response) == pytest.approx((0.0001, 0.00005, 0.002))


def test_only_symphony_serves_nearly_the_published_goodput() -> None:
    """At 95 % of Symphony's published goodput Nexus is far above 1 % bad; a fifth of a second shows it."""
    bad = {}
    for system in ("symphony", "nexus"):
        tried = scenario(Alone("ResNet50", system), 1200, 0).scaled(0.95 * 5169 / 5839)
        bad[system] = simulate(tried.model_copy(update={"warmup_seconds": 0.1})).bad_rate

    assert bad["symphony"] < 0.02
    assert bad["nexus"] > 0.05


def test_shares_count_requests() -> None:
    """One batch of 4 and four batches of 1: half of the requests, a fifth of the batches."""
    counts = np.array([0, 4, 0, 0, 1])

    assert [share_in_batches_of(counts, least) for least in (1, 2, 4)] == [1.0, 0.5, 0.5]
    assert share_in_batches_of(counts, 5) == 0.0


def entries(*rows: tuple[Any, ...]) -> np.ndarray:
    """A log of (kind, time, number, count, started)."""
    log = np.zeros(len(rows), ENTRY)
    for index, (kind, time, number, count, started) in enumerate(rows):
        log[index]["kind"], log[index]["time"], log[index]["number"] = kind, time, number
        log[index]["count"], log[index]["started"] = count, started
    return log


def test_delays_follow_the_requests_of_a_batch() -> None:
    """A batch that begins behind the oldest leaves it waiting; refused requests have no delay."""
    arrivals = [(ARRIVE, 1.0 * number, number, 0, np.nan) for number in range(5)]
    log = entries(
        *arrivals, (SEND, 5.0, 1, 2, 6.0), (SEND, 5.0, 0, 2, 7.0), (REFUSE, 5.0, 4, 1, np.nan)
    )  # 1 and 2; then 0 and 3

    assert delays(log, 1).tolist() == [5.0, 4.0, 7.0, 4.0]
    assert delays(log, 1, since=1.0).tolist() == [5.0, 4.0, 4.0]


def test_delays_of_requests_dealt_in_turn() -> None:
    """With two queues, a batch holds every second request."""
    arrivals = [(ARRIVE, 1.0 * number, number, 0, np.nan) for number in range(4)]

    assert delays(entries(*arrivals, (SEND, 4.0, 0, 2, 4.0), (SEND, 5.0, 1, 2, 5.0)), 2).tolist() == [
        4,
        2,
        4,
        2,
    ]


@pytest.mark.parametrize("system", ["nexus", "clockwork"])
def test_delays_equal_what_the_engine_counts(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure` itself asserts the mean and the longest."""
    monkeypatch.setattr(QueueingDelays, "search", lambda *_: SimpleNamespace(multiplier=0.6))
    monkeypatch.setattr(QueueingDelays, "requests", 400)
    waits = quick(QueueingDelays).measure(Alone("InceptionResNetV2", system), 0)

    assert waits.size > 200
    assert waits.min() >= 0


def test_a_flat_top_is_not_off() -> None:
    """What lies on the ideal is 0 away; the peak itself does not count."""
    loads = (0.5, 1.0, 2.0)
    flat = LoadCurve(1.0, [], [ideal_bad(load) for load in loads], [ideal_idle(load) for load in loads])

    assert (flat.bad, flat.idle) == ([0, 0, 0.5], [0.5, 0, 0])
    assert off_the_top(loads, flat) == (0, 0)
    assert off_the_top(loads, flat._replace(bad=[0, 0.3, 0.6], idle=[0.1, 0.9, 0])) == pytest.approx(
        (0.1, 0.4)
    )


def test_rows_and_curves_of_table_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows for each model and system, published values where the paper has them, and a figure."""
    monkeypatch.setattr(TwoModelGoodput, "measure", lambda _, task, seed: GoodputAndBatch(1000.0 + seed, 8.0))
    result = quick(TwoModelGoodput, seeds=3).run()

    assert len(result.rows) == 2 * len(TABLE_4) * len(SYSTEMS)
    assert [row.published for row in result.rows if row.published] == [5169, 3965, 2036, 907, 590, 482]
    assert {row.measured for row in result.rows} == {1001.0, 8.0}
    assert [len(result.panel(panel_name(setup))) for setup in TABLE_4] == [len(SYSTEMS)] * 2
    assert TwoModelGoodput.plot(result, tmp_path)[0].exists()


def test_rows_and_curves_of_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure draws what it has measured."""
    counts = np.array([0, 0, 0, 5, 5])
    monkeypatch.setattr(BatchSizes, "measure", lambda *_: counts)
    monkeypatch.setattr(QueueingDelays, "measure", lambda *_: np.array([1.0, 2.0, 3.0]))

    def measure(figure: FlatTop, *_: object) -> LoadCurve:
        return LoadCurve(100.0, *([0.5 * load for load in figure.loads] for _ in range(3)))

    monkeypatch.setattr(FlatTop, "measure", measure)
    batches, waits, loads = (quick(kind, seeds=2).run() for kind in (BatchSizes, QueueingDelays, FlatTop))

    assert batches.panel(panel_name(TABLE_4[0]))[0].y[:5] == [0, 0, 50, 50, 0]
    assert waits.panel(panel_name(TABLE_4[1]))[0].y[-1] == 100
    assert [len(loads.panel(name)) for name in (fig10.GOODPUT, fig10.BAD, fig10.IDLE)] == [5, 5, 5]
    assert BatchSizes.plot(batches, tmp_path)[0].exists()
    assert QueueingDelays.plot(waits, tmp_path)[0].exists()
    assert FlatTop.plot(loads, tmp_path)[0].exists()
