"""Two systems that get the same requests: how far apart their goodputs are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tuner.experiments.dispatch.duel import Pair, goodput_ratio, pairs_near_goodput, sign_row

STEEP = 13.0
"""How fast the share of bad requests grows, per cent of it per per cent of the rate."""


def share(rate: float, goodput: float) -> float:
    """The share of bad requests of a system: 1 % at its goodput."""
    return float(0.01 * (rate / goodput) ** STEEP)


def test_shares_say_how_far_goodputs_are_apart() -> None:
    """Exactly where the shares are exact."""
    pairs = [Pair(rate, share(rate, 525.0), share(rate, 500.0)) for rate in (470.0, 500.0, 530.0, 560.0)]

    ratio = goodput_ratio(pairs)

    assert ratio is not None
    assert ratio.measured == pytest.approx(1.05)
    assert (ratio.low, ratio.high) == pytest.approx((1.05, 1.05))
    assert ratio.slope == pytest.approx(STEEP)


def test_chance_that_both_meet_cancels_out() -> None:
    """Twenty-four pairs surely tell 5 %, though a trial has twice or half as many bad requests by chance."""
    rng = np.random.default_rng(0)
    met: dict[int, float] = {}

    def tried(rate: float, number: int, goodput: float) -> float:
        own = rng.normal(0.0, 0.3)
        return share(rate, goodput) * float(np.exp(met.setdefault(number, rng.normal(0.0, 0.7)) + own))

    pairs = pairs_near_goodput(
        {"symphony": lambda r, n: tried(r, n, 525.0), "eager": lambda r, n: tried(r, n, 500.0)},
        200.0, 4000.0, settling=3, counted=24,
    )  # fmt: skip
    ratio = goodput_ratio(pairs)

    assert ratio is not None
    assert ratio.measured == pytest.approx(1.05, abs=0.02)
    assert ratio.low > 1.0


def test_without_bad_requests_nothing_is_said() -> None:
    """A rate that never rises, and rates that are all kept without one, tell no slope."""
    assert goodput_ratio([Pair(100.0, 0.0, 0.02)] * 4) is None
    assert goodput_ratio([Pair(rate, 0.0, 0.0) for rate in (100.0, 107.0, 114.0)]) is None


def test_rates_stay_near_the_common_goodput_and_turns_alternate() -> None:
    """The rate that both are tried at is that at which their geometric mean is at the limit."""
    tried: list[tuple[str, float, int]] = []

    def noted(rate: float, number: int, name: str, goodput: float) -> float:
        tried.append((name, rate, number))
        return share(rate, goodput)

    goodputs = {"symphony": 420.0, "eager": 380.0}
    shares = {name: partial(noted, name=name, goodput=goodput) for name, goodput in goodputs.items()}
    pairs = pairs_near_goodput(shares, 200.0, 4000.0, settling=4, counted=10)

    assert len(pairs) == 10
    assert np.exp(np.log([pair.rate for pair in pairs]).mean()) == pytest.approx(400.0, rel=0.05)
    last = [(name, number) for name, _, number in tried[-4:]]
    assert last in (
        [("symphony", 12), ("eager", 12), ("eager", 13), ("symphony", 13)],
        [("eager", 12), ("symphony", 12), ("symphony", 13), ("eager", 13)],
    )
    assert all(tried[i][1] == tried[i + 1][1] for i in range(len(tried) - 28, len(tried), 2))


def test_a_sign_test_over_all_pairs() -> None:
    """Pairs alike do not count."""
    pairs = [Pair(100.0, 0.0, 0.01)] * 9 + [Pair(100.0, 0.02, 0.01)] + [Pair(100.0, 0.0, 0.0)] * 5

    row = sign_row(pairs)

    assert row.measured == 90.0
    assert row.note == "target: above; 9 of 10; p 0.021 by the sign test"
    assert sign_row(pairs[10:]).measured is None
