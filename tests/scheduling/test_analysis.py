"""The ideal of batch scheduling: the paper's own numbers, and what must hold of any profile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.profile import best_batch
from tuner.scheduling.analysis import Ideal, fewest_accelerators, staggered, uncoordinated
from tuner.scheduling.cluster import linear_latency

RESNET50 = linear_latency(0.001053, 0.005072, 0.025), 0.025, 8
INCEPTION_RESNET = linear_latency(0.005090, 0.018368, 0.070), 0.070, 8


@pytest.mark.parametrize(
    ("ideal", "arguments", "batch", "rate"),
    [
        (uncoordinated, RESNET50, 7, 4501),
        (staggered, RESNET50, 16, 5839),
        (uncoordinated, INCEPTION_RESNET, 3, 713),
        (staggered, INCEPTION_RESNET, 8, 1083),
    ],
)
def test_table_4_of_the_paper(
    ideal: Callable[..., Ideal], arguments: tuple[np.ndarray, float, int], batch: int, rate: int
) -> None:
    """Batch sizes and goodputs of Symphony's Table 4, to the last digit."""
    found = ideal(*arguments)

    assert (found.batch, round(found.rate)) == (batch, rate)


def test_the_longest_wait() -> None:
    """Coordinated, a request waits for the next of N evenly spread batches; alone, for a whole one."""
    latency, slo, accelerators = RESNET50

    assert staggered(latency, slo, accelerators).queueing == pytest.approx(latency[16] / 8)
    assert uncoordinated(latency, slo, accelerators).queueing == pytest.approx(latency[7])


def test_one_accelerator_gains_nothing_from_coordination() -> None:
    """With N = 1 both inequalities are the same."""
    latency, slo, _ = RESNET50

    assert staggered(latency, slo, 1) == uncoordinated(latency, slo, 1)


def test_an_slo_that_cannot_be_met() -> None:
    """Not even one request fits: nothing is served, and no number of accelerators helps."""
    latency = np.array([0.0, 0.010, 0.011])

    assert staggered(latency, 0.009, 4).rate == 0
    with pytest.raises(ValueError, match="slo > latency"):
        fewest_accelerators(latency, 0.010, 1.0)


def test_of_a_table_the_best_batch_is_taken() -> None:
    """A step in a table can make a smaller batch faster per request."""
    latency = np.array([0.0, 0.010, 0.012, 0.030, 0.031])

    assert best_batch(latency, 0.0305) == 2
    assert best_batch(latency, 0.031) == 2
    assert best_batch(latency, 0.005) == 0


def test_equality_satisfies_the_bound() -> None:
    """A batch that ends exactly in time is in time, whatever rounding does to the bound."""
    latency = linear_latency(0.001, 0.002, 1.0)

    assert [best_batch(latency, 0.003 + 0.001 * n) for n in range(20)] == list(range(1, 21))


@given(
    alpha=st.floats(1e-4, 0.02),
    beta=st.floats(0.0, 0.05),
    looseness=st.floats(1.01, 20.0),
    rate=st.floats(0.0, 20_000.0),
)
def test_fewest_accelerators_is_enough_and_one_less_is_not(
    alpha: float, beta: float, looseness: float, rate: float
) -> None:
    """The least N reaches the rate; N - 1 does not."""
    slo = looseness * (alpha + beta)
    latency = linear_latency(alpha, beta, slo)

    least = fewest_accelerators(latency, slo, rate)

    assert staggered(latency, slo, least).rate >= rate
    assert least == 1 or staggered(latency, slo, least - 1).rate < rate


def test_resnet50_needs_eight_accelerators_for_its_rate() -> None:
    """The inverse of Table 4."""
    latency, slo, _ = RESNET50

    assert fewest_accelerators(latency, slo, 5839) == 8
    assert fewest_accelerators(latency, slo, 5840) == 9
