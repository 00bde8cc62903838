"""The dispatcher beside other servers that form batches."""

from __future__ import annotations

import shutil

import pytest

from tests.experiments.quick import quick
from tuner.errors import AdapterError
from tuner.experiments.dispatch import fronts
from tuner.experiments.dispatch.fronts import OURS, DispatchFronts
from tuner.experiments.dispatch.rivals.apart import APART, RequestCost, measured
from tuner.experiments.dispatch.rivals.catalogue import SYSTEMS

COST = RequestCost(busy=0.0012, took=0.002, idle=0.1, latency=0.01)


def test_what_a_server_uses_without_requests_does_not_count() -> None:
    """A request costs what the server uses beyond that."""
    assert COST.rate == pytest.approx(1 / 0.001)


def test_a_rival_that_cannot_be_run_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared all the same."""

    def found(name: str, requests: int, seconds: float) -> RequestCost:
        if name == "MLServer":
            raise AdapterError("no wheel for this Python")
        return COST._replace(busy=0.0007) if name in OURS else COST

    monkeypatch.setattr(fronts, "measured", found)

    rows = {one.id: one for one in quick(DispatchFronts).run().rows}

    assert rows[f"{OURS[0]} over Ray Serve"].measured == pytest.approx(2.0)
    assert (rows["MLServer"].measured, rows["MLServer"].note) == (None, "no wheel for this Python")


def test_ours_must_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it there is nothing to compare."""

    def nothing(name: str, requests: int, seconds: float) -> RequestCost:
        raise AdapterError(f"{name}: {requests} {seconds}")

    monkeypatch.setattr(fronts, "measured", nothing)

    with pytest.raises(AdapterError, match=OURS[0]):
        quick(DispatchFronts).run()


def test_scripts_are_beside_the_catalogue() -> None:
    """Each server has one."""
    assert all(one.path.is_file() for one in SYSTEMS.values())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(APART[0]) is None, reason="there is no unshare (util-linux)")
def test_ours_is_measured_alone() -> None:
    """In namespaces of its own, with the time of its process on a core."""
    cost = measured(OURS[-1], 64, 0.5)

    assert 10 < cost.rate < 100_000
    assert 0 < cost.latency < 5
