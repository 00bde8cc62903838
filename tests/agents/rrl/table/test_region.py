"""The compiled region update against its plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents import naive
from tuner.agents.rrl.table.region import region_update


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_region_update_equals_naive(seed: int) -> None:
    """Equation 2 on random tables, regions and rates; everything outside the region stays."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 60))
    q = generator.uniform(0, 30, size)
    region = generator.permutation(size)[: generator.integers(1, size + 1)]
    estimates, rates = generator.uniform(0, 30, region.size), generator.uniform(0, 1, region.size)
    expected = naive.region_update(q.tolist(), region.tolist(), estimates.tolist(), rates.tolist(), 0.7)

    region_update(q, region, estimates, rates, 0.7)

    assert q == pytest.approx(expected)
