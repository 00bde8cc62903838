"""The neural prior: when it knows anything, of which load, and what it takes from the windows."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agents.rrl.neural.neural_bed import OBJECTIVE, RATE, SPACE, knowledge, seen, state
from tuner.agents.rrl import RRL
from tuner.agents.rrl.neural.estimator import estimate
from tuner.agents.rrl.neural.knowledge import SIZES
from tuner.agents.rrl.neural.prior import NeuralPrior
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.prior import LogCosts


def prior_of(agent: RRL) -> NeuralPrior:
    """The neural prior of an agent."""
    assert isinstance(agent.perception, SmoothPerception)
    prior = agent.perception.smoother.prior
    assert isinstance(prior, NeuralPrior)
    return prior


def test_a_prior_knows_nothing_until_a_window_was_watched() -> None:
    """Windows without requests or without executions show nothing."""
    prior = NeuralPrior(SPACE, OBJECTIVE)

    assert not prior.watch(0, seen(requests=0.0))
    assert not prior.watch(0, seen(compute_mean=math.nan))
    assert not prior.ready
    assert prior.watch(0, seen())
    assert prior.ready
    assert not prior.watch(0, seen())  # the same again shows nothing new


@pytest.mark.parametrize(("share", "gpu"), [(math.nan, False), (0.0, False), (0.3, True)])
def test_a_server_on_a_gpu_is_told_by_its_use(share: float, gpu: bool) -> None:
    """A machine may have one that idles while the server works on the processor."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen(gpu=share))

    assert prior.knowledge is not None
    assert prior.knowledge.gpu is gpu


@pytest.mark.parametrize("share", [math.nan, 0.0])
def test_a_gpu_that_hardly_worked_at_first_is_noticed_later(tmp_path: Path, share: float) -> None:
    """Of a server first watched at night, also where its policy was saved. A per cent is no sign of one."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    agent.update(state(gpu=share), 0, 0.8, state(gpu=share))
    agent.save(tmp_path)
    day = NeuralPrior(SPACE, OBJECTIVE)
    day.watch(0, seen(gpu=0.3))

    for prior in (prior_of(agent), prior_of(RRL.load(tmp_path, SPACE, synchronous=True))):
        assert not prior.watch(0, seen(gpu=0.01))
        assert prior.watch(0, seen(gpu=0.3))
        assert prior.knowledge is not None
        assert prior.knowledge.gpu
        assert prior.at(math.log2(RATE)).mean == pytest.approx(day.at(math.log2(RATE)).mean)
        assert not prior.watch(0, seen(gpu=0.0))


def test_estimates_are_kept_of_few_loads_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those asked for last; a load that changes for days fills no memory."""
    monkeypatch.setattr("tuner.agents.rrl.neural.prior.KEPT", 0)
    monkeypatch.setattr("tuner.agents.rrl.neural.prior.LEAST_KEPT", 2)
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen())

    first, second = prior.at(5.0), prior.at(6.0)
    prior.at(5.0)
    prior.at(7.0)

    assert prior.at(5.0) is first
    assert prior.at(6.0) is not second
    assert all(array.base is None or array.base.shape == array.shape for array in first if array is not None)


def test_two_threads_make_an_estimate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a fit and a decision; neither fails for an estimate that the other is just forgetting."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen())
    made: list[object] = []
    elsewhere: list[LogCosts] = []
    other = threading.Thread(target=lambda: elsewhere.append(prior.at(5.0)))

    def slow(*given: Any) -> Any:
        made.append(given)
        if len(made) == 1:
            other.start()
            other.join(0.1)  # it comes here, too, unless it has to wait
        return estimate(*given)

    monkeypatch.setattr("tuner.agents.rrl.neural.prior.estimate", slow)
    here = prior.at(5.0)
    other.join()

    assert len(made) == 1
    assert elsewhere[0] is here


def test_a_larger_batch_is_worth_a_new_estimate() -> None:
    """l(b) is known better."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen())
    before = prior.at(math.log2(RATE)).mean

    assert prior.watch(5, seen(batch_mean=8.0, compute_mean=0.008))
    assert prior.knowledge is not None
    assert prior.knowledge.execution(SIZES[3:4]) == pytest.approx([0.008])
    assert not np.array_equal(before, prior.at(math.log2(RATE)).mean)


def test_a_load_is_judged_by_windows_of_loads_near_it() -> None:
    """A server first watched at night is well known by day, and again by night."""
    prior, here = NeuralPrior(SPACE, OBJECTIVE), SPACE.encode(SPACE.default)
    night, day = math.log2(20.0), math.log2(160.0)
    prior.watch(here, seen(rate=20.0, cpu=0.1))
    at_night = prior.at(night)
    assert "watched windows" in prior.unlike(day)
    unsure = prior.at(day).deviation.mean()
    assert not prior.watch(here, seen(rate=35.0, cpu=0.2))  # no farther than in the training

    assert prior.watch(here, seen(rate=160.0))
    assert not prior.watch(here, seen(rate=165.0))

    assert prior.unlike(day) == ()
    assert prior.at(day).deviation.mean() < 0.5 * unsure
    assert prior.at(night).mean == pytest.approx(at_night.mean)


def test_bursts_count_from_the_window_that_shows_them(tmp_path: Path) -> None:
    """Without clients not the first; until then arrivals are Poisson's. Chance changes nothing."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    agent.update(state(), 0, 0.8, state())
    agent.save(tmp_path)
    again = RRL.load(tmp_path, SPACE, synchronous=True)

    for prior in map(prior_of, (agent, again)):
        before = prior.at(math.log2(RATE)).mean

        assert prior.watch(0, seen(burstiness=6.0))
        assert prior.at(math.log2(RATE)).mean.mean() > before.mean()
        assert not prior.watch(0, seen(burstiness=4.0))
        assert prior.watch(0, seen(burstiness=1.0))


def test_requests_of_several_rows_load_a_server_as_rows_do() -> None:
    """20 requests/s of 16 images keep it as busy as 320 of one image: few batches are too small."""
    several, single, idle = (NeuralPrior(SPACE, OBJECTIVE) for _ in range(3))
    several.watch(0, seen(rate=20.0, batch_mean=16.0, request_rows=16.0))
    single.watch(0, seen(rate=320.0, batch_mean=16.0, request_rows=1.0))
    idle.watch(0, seen(rate=20.0, batch_mean=16.0, request_rows=1.0))

    expected = several.at(math.log2(20.0))

    for one, other in zip(expected, single.at(math.log2(320.0)), strict=True):
        assert one == pytest.approx(other)
    assert expected.mean.max() > idle.at(math.log2(20.0)).mean.max() + 0.5


def test_rows_of_requests_count_from_the_window_that_shows_others(tmp_path: Path) -> None:
    """Latencies of requests of one row say nothing of those of many. Chance, or a cache, changes nothing."""
    agent = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    agent.update(state(request_rows=1.03), 0, 0.8, state(request_rows=0.4))
    load = math.log2(RATE)
    unchanged = RRL(SPACE, objective=OBJECTIVE, synchronous=True)
    unchanged.update(state(), 0, 0.8, state())
    assert np.array_equal(prior_of(agent).at(load).mean, prior_of(unchanged).at(load).mean)
    agent.update(state(request_rows=4.0), 0, 0.8, state(request_rows=4.0))
    agent.save(tmp_path)

    for prior in (prior_of(agent), prior_of(RRL.load(tmp_path, SPACE, synchronous=True))):
        assert prior.at(load).mean.mean() > prior_of(unchanged).at(load).mean.mean()
        assert not prior.watch(0, seen(request_rows=3.5))
        assert prior.watch(0, seen(request_rows=1.0))
        assert prior.at(load).mean == pytest.approx(prior_of(unchanged).at(load).mean)


def test_a_burstiness_that_was_given_stays() -> None:
    """As does the profile."""
    prior = NeuralPrior(SPACE, OBJECTIVE, knowledge=knowledge())

    assert not prior.watch(0, seen(burstiness=6.0))


def test_a_batch_that_shared_its_cores_with_too_many_teaches_nothing() -> None:
    """An overloaded window would make other configurations look like the best there are."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen(batch_mean=4.0, compute_mean=0.01))
    before = prior.knowledge

    assert not prior.watch(5, seen(batch_mean=8.0, compute_mean=0.03))
    assert prior.knowledge is before
    assert prior.watch(5, seen(batch_mean=8.0, compute_mean=0.02))  # as long as one by one


def test_a_busy_neighbour_leaves_fewer_cores() -> None:
    """Another instance is worth less on half of the machine, and the load weighs more."""
    prior = NeuralPrior(SPACE, OBJECTIVE)
    prior.watch(0, seen())
    alone, shared = (prior.at(math.log2(RATE), left).mean for left in (1.0, 0.5))
    two, one = ([n for n in range(SPACE.size) if SPACE.decode(n)["instances"] == count] for count in (2, 1))

    assert shared.mean() > alone.mean()
    assert (shared[two] - shared[one]).mean() > (alone[two] - alone[one]).mean()
