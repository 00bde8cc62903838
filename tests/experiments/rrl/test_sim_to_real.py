"""From simulation to a real server, with a simulated one in the real one's place."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.builders import SPACE
from tests.experiments.quick import quick
from tuner.agents.agent import State
from tuner.envs.simulator.server import ServerModel
from tuner.experiments.frame.options import Watcher
from tuner.experiments.live.testbed import QUICK_GRIDS, measure_in_turns, objective
from tuner.experiments.rrl.live_learning import LiveWindow, learn_live
from tuner.experiments.rrl.prediction import PredictedPoint, error_rows, measure_points, predict
from tuner.experiments.rrl.sim_to_real import ESTIMATOR, RIVALS, TRAINED, Learned, Loads, SimToReal
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import STATISTICS
from tuner.profiler.attachment import Attachment, attach
from tuner.setting import Load

compiled = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="simulates for minutes")
REAL = ServerModel(table={1: 0.0045, 2: 0.005, 4: 0.0063, 8: 0.0092, 16: 0.0145}, noise=0.2, overhead=0.0013)


def setting(batch: float, delay: float = 0.0, instances: float = 1.0) -> Configuration:
    return Configuration(max_batch_size=batch, max_queue_delay=delay, instances=instances)


def point(measured: float, predicted: float, rate: float = 100.0, batch: float = 1.0) -> PredictedPoint:
    return PredictedPoint(
        rate=rate,
        configuration=setting(batch),
        predicted=dict.fromkeys(STATISTICS, predicted),
        measured=dict.fromkeys(STATISTICS, measured),
        repeats=[measured, 1.1 * measured],
    )


@contextmanager
def bench(rate: float, seed: int, folder: Path) -> Iterator[Attachment]:
    """A server that is simulated, but that nobody knows the model of."""
    REAL.save(folder / "real.json")
    with attach(
        f"sim://mlp?server={folder / 'real.json'}&seed={seed + 7}", grids=QUICK_GRIDS, load=Load(rate=rate)
    ) as attachment:
        yield attachment


def test_errors_are_those_of_what_can_be_served() -> None:
    """The median over points, with quartiles; what is overloaded only counts as foreseen or not."""
    points = [
        point(0.010, 0.011, 100.0, 1), point(0.020, 0.018, 100.0, 2), point(0.030, 0.039, 200.0, 4),
        point(0.040, 0.040, 200.0, 8), point(3.0, 4.0, 200.0, 16), point(3.0, 0.1, 200.0, 32),
    ]  # fmt: skip

    rows = {row.id: row for row in error_rows(points)}

    p95 = rows["median error of p95"]
    assert (p95.measured, p95.low, p95.high, p95.published) == (10.0, 7.5, 15.0, 15.0)
    assert "two windows alike differ by 10.0 %" in p95.note
    assert rows["median error of mean"].published is None
    assert rows["rank correlation of p95"].measured == 0.986  # a tie of overloads
    assert rows["rank correlation of p95 without the overloaded"].measured == 1.0
    assert rows["rank correlation of p95 at 100 requests/s"].measured is None  # two points show none
    overloads = rows["overloads foreseen"]
    assert (overloads.published, overloads.measured) == (2.0, 1.0)
    assert "0 others" in overloads.note
    far = rows["points whose p95 is off by more than a factor of 2"]
    assert (far.measured, far.note) == (1.0, "of 6; measured 3000 to 3000 ms; predicted 100 to 100 ms")


def test_where_nothing_is_overloaded_nothing_is_foreseen() -> None:
    """There is no figure then, but predictions that are far off are still reported."""
    rows = {row.id: row for row in error_rows([point(0.2, 0.03), point(0.02, 0.02), point(0.03, 0.03)])}

    overloads = rows["overloads foreseen"]
    assert (overloads.published, overloads.measured) == (None, None)
    assert overloads.note.startswith("nothing to foresee")
    assert rows["points whose p95 is off by more than a factor of 2"].measured == 1.0


def test_points_are_measured_and_predicted(tmp_path: Path) -> None:
    """Each in every round, what is overloaded once; predicted by a model that is right they agree."""
    told: list[str] = []
    small, large = setting(1), setting(16, 0.005, 2)
    with bench(100.0, 0, tmp_path) as attachment:
        found = measure_points(
            attachment, 350.0, [small, large], seconds=1.5, rounds=2, seed=0, report=told.append
        )
        assert attachment.rate == 35.0
        assert attachment.backend.current() == attachment.original

    assert [len(found[configuration]) for configuration in (small, large)] == [1, 2]
    assert len(told) == 3
    predicted = {p.configuration: p for p in predict(REAL, 350.0, {large: found[large]})}[large]
    assert not predicted.overloaded
    assert predicted.measured["p95"] == pytest.approx(sum(predicted.repeats) / 2)
    assert predicted.error("p95") == pytest.approx(0.0, abs=0.2)
    assert predicted.to_json()["rate"] == 350.0


def test_turns_give_every_round(tmp_path: Path) -> None:
    """A p95 per configuration and round."""
    with bench(100.0, 0, tmp_path) as attachment:
        found = measure_in_turns(attachment, [setting(4), setting(16)], seconds=1.0, rounds=2)

    assert {c["max_batch_size"]: len(values) for c, values in found.items()} == {4: 2, 16: 2}


class Fixed:
    """Chooses one configuration, and notes what it observes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.states: list[State] = []
        self.learned: list[float] = []

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        self.states.append(state)
        return self.number

    def best(self, state: State, allowed: np.ndarray | None = None) -> int:
        return self.number

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        self.learned.append(cost)


def test_an_agent_is_told_of_the_load_before_it_comes(tmp_path: Path) -> None:
    """Its first choice is for that load, and no window of it passes under the server's own configuration."""
    with bench(100.0, 0, tmp_path) as attachment:
        agent = Fixed(attachment.space.encode(setting(16, 0.005, 2)))
        windows = learn_live(attachment, agent, objective(attachment), rate=350.0, windows=2, seconds=1.0)  # type: ignore[arg-type]
        assert attachment.backend.current() == attachment.original

    assert [state.level for state in agent.states] == [26, 26]
    assert len(agent.learned) == len(windows) == 2
    for window, cost in zip(windows, agent.learned, strict=True):
        assert (window.configuration, window.kept, window.disturbed) == (setting(16, 0.005, 2), True, False)
        assert cost == pytest.approx(window.p95 / 0.030)
        assert window.best == window.configuration


@compiled
def test_the_whole_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a simulated server the model is right, and the policy at home from its first window on."""
    said: list[str] = []
    monkeypatch.setattr(SimToReal, "bench", lambda _, rate, seed: bench(rate, seed, tmp_path))

    result = quick(SimToReal, watcher=Watcher(report=said.append)).run()

    assert said

    rows = {row.id: row for row in result.rows}
    assert rows["seconds of observation"].measured <= 60  # type: ignore[operator]
    assert rows[f"{TRAINED}: windows above the SLO"].measured == 0
    assert rows[f"{TRAINED}: windows to within 10 %"].published == 10
    assert rows["hill_climb cold: windows above the SLO"].measured > 0  # type: ignore[operator]
    assert rows["median error of p95"].measured < 15  # type: ignore[operator]
    assert rows["rank correlation of p95"].measured > 0.8  # type: ignore[operator]
    assert rows[f"{ESTIMATOR}: median error of p95"].measured < 25  # type: ignore[operator]
    assert rows[f"{ESTIMATOR}: rank correlation of p95"].measured > 0.8  # type: ignore[operator]
    assert set(result.details["windows"]) == {TRAINED, *RIVALS}
    assert result.details["foreign cores"]["most"] == 0
    images = SimToReal.plot(result, tmp_path)
    assert [image.name for image in images] == ["sim-to-real.png", "sim-to-real-statistics.png"]


@pytest.mark.parametrize("seeds", [0, 1])
def test_the_seeds_before_ctrl_c_are_kept(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    """Those of all agents; without any there is nothing to summarise."""
    study = quick(SimToReal, seeds=3)

    def learn(
        _: SimToReal, name: str, model: ServerModel, space: KnobSpace, loads: Loads, seed: int
    ) -> Learned:
        if seed == seeds and name != TRAINED:
            raise KeyboardInterrupt
        return Learned([], setting(4))

    monkeypatch.setattr(SimToReal, "_learn", learn)
    if not seeds:
        with pytest.raises(KeyboardInterrupt):
            study._learn_all(REAL, SPACE, Loads.of(0.004))
        return
    learned = study._learn_all(REAL, SPACE, Loads.of(0.004))

    assert {name: len(runs) for name, runs in learned.items()} == dict.fromkeys((TRAINED, *RIVALS), 1)
    assert (study.stopped, study.options.seeds) == (True, 1)


def test_windows_are_plain_values() -> None:
    """They are stored."""
    window = LiveWindow(
        configuration=setting(4), best=setting(8), p95=0.01, kept=True, foreign=0.0, disturbed=False
    )

    assert window.to_json()["best"]["max_batch_size"] == 8
    assert not math.isnan(window.to_json()["p95"])
