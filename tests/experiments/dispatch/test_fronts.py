"""The dispatcher beside other servers that form batches."""

from __future__ import annotations

import pytest

from tests.experiments.quick import quick
from tuner.errors import AdapterError
from tuner.experiments.dispatch import fronts
from tuner.experiments.dispatch.fronts import OURS, DispatchFronts
from tuner.experiments.dispatch.rivals.apart import CoreRate, measured
from tuner.experiments.dispatch.rivals.catalogue import SYSTEMS


def test_a_rival_that_cannot_be_run_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared all the same."""

    def found(name: str, requests: int) -> CoreRate:
        if name == "MLServer":
            raise AdapterError("no wheel for this Python")
        return CoreRate(2000.0 if name == OURS else 500.0, 0.01)

    monkeypatch.setattr(fronts, "measured", found)

    rows = {one.id: one for one in quick(DispatchFronts).run().rows}

    assert rows["dispatcher over Ray Serve"].measured == 4.0
    assert (rows["MLServer"].measured, rows["MLServer"].note) == (None, "no wheel for this Python")


def test_scripts_are_beside_the_catalogue() -> None:
    """Each server has one."""
    assert all(one.path.is_file() for one in SYSTEMS.values())


@pytest.mark.slow
def test_ours_is_measured_alone() -> None:
    """In namespaces of its own, with the time of its process on a core."""
    rate = measured(OURS, 64)

    assert 10 < rate.rate < 100_000
    assert 0 < rate.latency < 5
