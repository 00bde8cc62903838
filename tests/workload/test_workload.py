"""The offered rates of an episode, and the specs that name them."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.workload import WORKLOADS, workload
from tuner.workload.workload import LEAST

NAMES = ("constant", "dynamic", "wikipedia", "step", "ramp", "burst")


def rates(spec: str, windows: int = 300, seed: int = 0, rate: float = 100.0) -> np.ndarray:
    """Rates of an episode."""
    return workload(spec, rate).rates(windows, np.random.default_rng(seed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("windows", [1, 2, 7, 300])
def test_every_window_has_a_positive_rate(name: str, windows: int) -> None:
    """Whatever the length of the episode."""
    found = rates(name, windows)

    assert found.shape == (windows,)
    assert np.isfinite(found).all()
    assert (found >= 100 * LEAST).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_rates(name: str) -> None:
    """And rates are proportional to the nominal one."""
    assert (rates(name, seed=3) == rates(name, seed=3)).all()
    np.testing.assert_allclose(2 * rates(name, seed=3), rates(name, seed=3, rate=200.0))


@pytest.mark.parametrize(
    "spec",
    [
        *NAMES,
        "step:low=0.5,high=0.3,at=0.9",
        "wikipedia:spikes=0,noise=0.1,burstiness=0.3",
        "burst:every=0.1",
    ],
)
def test_a_workload_prints_as_the_spec_that_makes_it(spec: str) -> None:
    """Two plain values are all there is to store."""
    one = workload(spec, 14.0)

    assert workload(str(one), one.rate) == one
    assert str(workload(str(one), one.rate)) == str(one)


def test_defaults_are_not_written() -> None:
    """A spec says what differs."""
    assert str(workload("step:low=0.7,high=2", 1.0)) == "step:high=2.0"


def test_dynamic_follows_the_authors_schedule() -> None:
    """Mean gaps of 0.07, 0.06, 0.07, 0.10 and 0.12 s from iterations 0, 800, 1300, 2000 and 2400 of 3,000."""
    gaps = 1 / rates("dynamic", 3000, rate=1 / 0.07)

    for first, last, gap in [
        (0, 800, 0.07),
        (800, 1300, 0.06),
        (1300, 2000, 0.07),
        (2000, 2400, 0.1),
        (2400, 3000, 0.12),
    ]:
        np.testing.assert_allclose(gaps[first:last], gap)


def test_dynamic_is_stretched_over_any_episode() -> None:
    """The same shares of the episode."""
    short, long = rates("dynamic", 30), rates("dynamic", 3000)

    assert (short == long[::100]).all()


def test_step_and_ramp() -> None:
    """Before and after a moment; between two moments."""
    assert rates("step:low=0.5,high=2,at=0.3", 10).tolist() == [50.0] * 3 + [200.0] * 7
    np.testing.assert_allclose(rates("ramp:low=0.5,high=1.5", 4), [62.5, 87.5, 112.5, 137.5])
    np.testing.assert_allclose(
        rates("ramp:low=1,high=2,start=0.25,end=0.75", 8), [100, 100, 112.5, 137.5, 162.5, 187.5, 200, 200]
    )


def test_bursts_come_at_equal_intervals() -> None:
    """The first after half an interval; none is lost in an episode of few windows."""
    found = rates("burst:high=3,every=0.25,length=0.05", 40)

    assert np.flatnonzero(found > 100).tolist() == [5, 6, 15, 16, 25, 26, 35, 36]
    assert (rates("burst:high=3,every=0.25,length=0.01", 8) > 100).sum() == 4
    assert np.flatnonzero(rates("burst", 25) > 100).tolist() == [2, 7, 12, 17, 22]
    assert np.flatnonzero(rates("burst", 45) > 100).tolist() == [4, 5, 13, 14, 22, 23, 31, 32, 40, 41]


def test_wikipedia_has_days_and_nights() -> None:
    """Without noise and spikes the mean is nominal, and a day has about twice the load of a night."""
    found = rates("wikipedia:spikes=0,noise=0,days=3", 3000)

    assert found.mean() == pytest.approx(100, rel=1e-3)
    assert found.max() / found.min() == pytest.approx(1.225 / 0.625, rel=1e-3)
    nights = np.flatnonzero((found[1:-1] < found[:-2] - 1e-9) & (found[1:-1] <= found[2:] + 1e-9))
    assert len(nights) == 3


def test_wikipedia_noise_is_slow_and_keeps_the_mean() -> None:
    """Neighbouring windows are alike, a day apart they are not."""
    found = np.log(rates("wikipedia:spikes=0,swing=0,noise=0.1,days=100", 100_000) / 100)
    found -= found.mean()

    assert found.std() == pytest.approx(0.1, rel=0.05)
    assert np.exp(found).mean() == pytest.approx(1.005, abs=0.005)
    assert (found[1:] * found[:-1]).mean() / found.var() == pytest.approx(np.exp(-24 / 1000), abs=0.01)
    assert abs((found[1000:] * found[:-1000]).mean() / found.var()) < 0.1


def test_wikipedia_spikes_rise_in_one_window_and_decay() -> None:
    """Their number differs from seed to seed, their heights stay in bounds, and noise does not move them."""
    spec = "wikipedia:swing=0,noise=0,spikes=1,length=0.02"
    counts = []
    for seed in range(30):
        found = rates(spec, 1000, seed) / 100
        rises = np.flatnonzero(np.diff(found) > 0.2)
        counts.append(len(rises))
        if len(rises) == 1 and rises[0] < 900:
            top = rises[0] + 1
            assert 1.3 <= found[top] <= 1.6
            assert (found[top + 20] - 1) / (found[top] - 1) == pytest.approx(np.exp(-1))
    assert len(set(counts)) > 1
    assert 0.5 < np.mean(counts) < 1.5

    quiet, noisy = rates(spec, 1000, 5), rates(spec.replace("noise=0", "noise=0.02"), 1000, 5)
    assert (np.abs(np.log(noisy / quiet)) < 0.1).all()


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("", "constant, dynamic, wikipedia"),
        ("sinus", "there is no 'sinus'; use one of constant"),
        ("step:hgh=2", "step: there is no parameter 'hgh'; did you mean high?"),
        ("constant:x=1", "use burstiness"),
        ("step:high", "'high' has no '='; write low=NUMBER"),
        ("step:high=two", "high='two' is not a number"),
        ("step:high=2,high=3", "high is given twice"),
        ("step:high=-1", "high=-1 is not between 0.01 and 100"),
        ("step:at=nan", "at=nan is not between 0 and 1"),
        ("constant:burstiness=0", "burstiness=0 is not between"),
    ],
)
def test_unusable_specs_are_told(spec: str, names: str) -> None:
    """With what there is instead."""
    with pytest.raises(InvalidInput) as raised:
        workload(spec, 14.0)

    assert names in str(raised.value)
    assert str(raised.value).startswith("--workload")


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_unusable_rates_are_told(rate: float) -> None:
    """A nominal rate is a positive number."""
    with pytest.raises(InvalidInput, match="rate"):
        workload("constant", rate)


def test_every_workload_describes_itself() -> None:
    """A line each, and a few words for each parameter."""
    for name, kind in WORKLOADS.items():
        assert kind.name == name
        assert kind.about
        assert kind.__doc__
        assert all(field.metadata["about"] for field in kind.parameters())
