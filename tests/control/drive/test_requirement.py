"""Whether there is something to tune."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tuner.adapters.triton.knobs import STATEFUL
from tuner.control.drive.requirement import check_target, require_knobs
from tuner.errors import InvalidInput, ReadOnly
from tuner.objective import Slo

P95, MEAN = Slo(statistic="p95", latency=0.030), Slo(statistic="mean", latency=0.030)


def attached(*why: str, size: int = 1) -> Any:
    return SimpleNamespace(
        space=SimpleNamespace(size=size), description=SimpleNamespace(model="mlp", without_knobs=why)
    )


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ((), r"--knob parameters\.threads=1,2"),
        ((STATEFUL,), r"value; the model has sequences .*\(instances=1,2\)"),
        ((f"s: {STATEFUL}",), r"value; s: the model has sequences"),
    ],
)
def test_a_target_without_knobs(why: tuple[str, ...], advice: str) -> None:
    """The advice is the adapter's where it says why there are none, and nothing that does harm."""
    with pytest.raises(InvalidInput, match="mlp has no knob with more than one.*" + advice) as caught:
        require_knobs(attached(*why))

    assert str(caught.value).endswith("; or use observe")
    assert ("parameters" in str(caught.value)) == (STATEFUL not in str(caught.value))
    require_knobs(attached(*why, size=2))


def target(*, size: int = 2, cpu: float = 1.0, notes: tuple[str, ...] = (), **changes: Any) -> Any:
    """A target whose latency nobody times, but whose mean the server counts."""
    described = {"writable": True, "quantiles": False, "lacks": ()} | changes
    return SimpleNamespace(
        space=SimpleNamespace(size=size),
        description=SimpleNamespace(
            model="mlp", target="fake://x/mlp", without_knobs=(), notes=notes, **described
        ),
        host=SimpleNamespace(read=lambda: SimpleNamespace(server=cpu)),
        indicator=changes.get("indicator"),
        load=changes.get("load"),
    )


@pytest.mark.parametrize("timed", ["quantiles", "indicator", "load"])
def test_a_quantile_must_be_timed_by_somebody(timed: str) -> None:
    """The server, another source, or requests of our own; its mean is counted in any case."""
    with pytest.raises(InvalidInput, match=r"p95 is not exported by the server.*give --rate"):
        check_target(target(), P95, "latency", apply=True)
    with pytest.raises(InvalidInput, match="switch its summary on"):
        check_target(target(notes=("switch its summary on",)), P95, "latency", apply=True)

    changes: dict[str, Any] = {timed: True}
    check_target(target(**changes), P95, "latency", apply=True)
    check_target(target(), MEAN, "latency", apply=True)


def test_what_takes_no_changes_may_be_watched() -> None:
    """Only who is going to change it is refused, with the reason that the adapter gives."""
    fixed = target(writable=False, quantiles=True, notes=("explicit model control is off",))

    with pytest.raises(ReadOnly, match="explicit model control is off"):
        check_target(fixed, P95, "latency", apply=True)
    check_target(fixed, P95, "latency", apply=False)


def test_what_is_only_measured_need_not_have_what_decisions_need() -> None:
    """No knob, no quantile, and no use of the CPU that could be seen."""
    bare = target(size=1, cpu=math.nan)

    check_target(bare, P95, "cpu", apply=False, decide=False)
    with pytest.raises(InvalidInput, match="no knob"):
        check_target(bare, MEAN, "latency", apply=False)
    with pytest.raises(InvalidInput, match="CPU use cannot be seen"):
        check_target(target(cpu=math.nan), MEAN, "cpu", apply=False)


@pytest.mark.parametrize(
    ("statistic", "load"), [("mean", None), ("p50", None), ("p95", None), ("p95", "load")]
)
def test_an_slo_on_a_quantile_that_the_server_does_not_export(statistic: str, load: str | None) -> None:
    """It exports others; requests of our own are timed whatever it exports."""
    target = attached(size=2)
    target.indicator, target.load, target.host = None, load, Mock()
    vars(target.description).update(
        quantiles=True, lacks=("p95",), writable=True, notes=("its summary_quantiles lack p95",)
    )
    slo = Slo(statistic=statistic, latency=0.03)

    if statistic == "p95" and load is None:
        with pytest.raises(InvalidInput, match=r"p95 is not exported .*its summary_quantiles lack"):
            check_target(target, slo, "latency", apply=True)
    else:
        check_target(target, slo, "latency", apply=True)
