"""What Prometheus reads when a target cannot be measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.builders import configuration, measurement
from tuner.control import GuardLimits
from tuner.control.daemon.config import TargetConfig
from tuner.control.daemon.phase import NOT_STORED, OVERDUE_WINDOW, AbsentTarget
from tuner.control.daemon.report import WorkerReport
from tuner.control.decide.decision import Apply, Hold
from tuner.control.decide.memory import Memory
from tuner.control.drive.journal import WindowRecord
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement
from tuner.objective import Slo
from tuner.planning.autoscale import ScalingAdvice

pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")

from tuner.control.web import exporter as module
from tuner.control.web.exporter import Exporter

P95, P99 = Slo(statistic="p95", latency=0.030), Slo(statistic="p99", latency=0.200)


def turn(measured: Measurement | None, unused: str = "") -> WorkerReport:
    """A turn of a worker, whose window was measured or not, and used or not."""
    record = WindowRecord(number=1, measurement=measured, decision=Hold(reason="x"), cost=0.5)
    return WorkerReport(
        record=record,
        kept=True,
        slo=P95,
        unused=unused,
        first_after_change=not unused,
        running=configuration(),
    )


def test_a_target_falls_silent_when_its_windows_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns go on while its metrics hang; the time of the last window stands still, as an alert can see."""
    exporter = Exporter()
    for now, measured in ((100.0, measurement()), (200.0, None), (300.0, None)):
        monkeypatch.setattr(module.time, "time", lambda now=now: now)  # type: ignore[attr-defined]
        exporter.report("a", turn(measured))

    value = exporter.registry.get_sample_value
    assert value("servetune_last_window_timestamp_seconds", {"target": "a"}) == 100.0
    assert value("servetune_windows_total", {"target": "a", "slo": "away"}) == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("rollbacks", {}),
        ("decisions", {"action": "roll back", "outcome": "applied"}),
        ("decisions", {"action": "apply", "outcome": "failed"}),
        ("windows", {"slo": "broken"}),
        ("failed_requests", {}),
        ("foreign_changes", {}),
    ],
)
def test_what_has_not_happened_yet_is_0(name: str, labels: dict[str, str]) -> None:
    """Prometheus' `increase` does not see the first of a counter that begins with 1, such as a rollback."""
    exporter = Exporter()
    config = TargetConfig(name="a", url="sim://mlp", slo="p95=30ms", mode="apply")  # type: ignore[arg-type]
    worker = SimpleNamespace(config=config, phase="starting", advisor=None)

    exporter.page({"a": worker}, {})  # type: ignore[dict-item]

    value = exporter.registry.get_sample_value
    assert value(f"servetune_{name}_total", {"target": "a", **labels}) == 0
    assert f"servetune_{name}_total{{" not in exporter.page({}, {}).decode()


@pytest.mark.parametrize(("phase", "up"), [("starting", 0), ("waiting: no answer", 0), ("running", 1)])
def test_a_target_that_was_never_attached_is_told(phase: str, up: int) -> None:
    """An alert on those that are not up needs no window of theirs."""
    exporter = Exporter()
    config = TargetConfig(name="a", url="sim://mlp", slo="p95=30ms")  # type: ignore[arg-type]
    worker = SimpleNamespace(config=config, phase=phase, advisor=None)

    exporter.page({"a": worker}, {})  # type: ignore[dict-item]

    value = exporter.registry.get_sample_value
    assert value("servetune_target_up", {"target": "a"}) == up
    assert value("servetune_target_window_seconds", {"target": "a"}) == config.window


def test_a_target_without_a_worker_is_told() -> None:
    """It waits for one that hangs, or is being started again: it is not up, and what was counted stays."""
    exporter = Exporter()
    config = TargetConfig(name="a", url="sim://mlp", slo="p95=30ms")  # type: ignore[arg-type]
    exporter.report("a", turn(measurement()))

    exporter.page({"a": AbsentTarget(config=config, phase="waiting: it still hangs", since=0.0)}, {})

    value = exporter.registry.get_sample_value
    assert value("servetune_target_up", {"target": "a"}) == 0
    assert value(
        "servetune_target_info", {"target": "a", "mode": "recommend", "slo": str(P95), "objective": "latency"}
    )
    assert value("servetune_windows_total", {"target": "a", "slo": "kept"}) == 1


def test_a_window_that_teaches_nothing_counts_for_nothing() -> None:
    """Whatever its figures are: neither as kept, nor as what a change was good for."""
    exporter = Exporter()

    exporter.report("a", turn(measurement(), unused="the server's quantiles still look back"))

    value = exporter.registry.get_sample_value
    assert exporter.attainment("a") is None
    assert value("servetune_observed_cost", {"target": "a"}) is None
    assert value("servetune_windows_total", {"target": "a", "slo": "unusable"}) == 1


def test_an_slo_and_knobs_that_are_gone_are_not_exported() -> None:
    """The file has another SLO and other knobs after SIGHUP; windows are counted from there."""
    exporter = Exporter()

    def page(slo: str, *knobs: str) -> str:
        config = TargetConfig(name="a", url="sim://mlp", slo=slo)  # type: ignore[arg-type]
        judged = replace(turn(measurement()), kept=config.slo == P99, slo=config.slo)
        exporter.report("a", replace(judged, running=Configuration(dict.fromkeys(knobs, 1.0))))
        worker = SimpleNamespace(config=config, phase="running", advisor=None)
        return exporter.page({"a": worker}, {}).decode()  # type: ignore[dict-item]

    page("p95=30ms", "instances", "max_batch_size")
    found = page("p99=200ms", "max_batch_size")

    lines = [line for line in found.splitlines() if line.startswith(("servetune_slo_", "servetune_knob"))]
    assert lines == [
        'servetune_slo_latency_seconds{statistic="p99",target="a"} 0.2',
        'servetune_knob{knob="max_batch_size",target="a"} 1.0',
        'servetune_slo_attainment_ratio{target="a"} 1.0',
    ]


def test_another_server_of_the_name_begins_with_windows_of_its_own() -> None:
    """Its first window need not be usable, and the old server's verdicts say nothing of it by then."""
    exporter = Exporter()
    old, new = (replace(turn(measurement()), target=number, kept=number == 2) for number in (1, 2))
    change = Apply(configuration=configuration(8), reason="x", expected=0.4)
    applied = replace(old.record, decision=change, outcome="applied")

    exporter.report("a", replace(old, record=applied))
    exporter.report("a", old)
    value = exporter.registry.get_sample_value
    shown = [
        f"servetune_{name}" for name in ("slo_attainment_ratio", "cost", "expected_cost", "observed_cost")
    ]
    assert [value(name, {"target": "a"}) for name in shown] == [0.0, 0.5, 0.4, 0.5]
    exporter.report("a", replace(new, unused="disturbed"))
    assert [value(name, {"target": "a"}) for name in shown] == [None] * 4
    assert exporter.attainment("a") is None
    exporter.report("a", new)

    assert exporter.attainment("a") == value(shown[0], {"target": "a"}) == 1.0
    assert value("servetune_windows_total", {"target": "a", "slo": "broken"}) == 2, "what was counted stays"


def test_how_many_servers_a_target_should_have() -> None:
    """By pool, for an autoscaler; when nobody can say any more there is no such metric."""
    exporter = Exporter()
    advice = {name: ScalingAdvice(accelerators=1, desired=3, reason="x") for name in ("m", "n")}
    names = ("servetune_desired_accelerators", {"target": "a", "pool": "n"})

    exporter.report("a", replace(turn(measurement()), scaling=advice))
    assert exporter.registry.get_sample_value(*names) == 3.0
    exporter.report("a", replace(turn(measurement()), scaling={"m": advice["m"]}))
    assert exporter.registry.get_sample_value(*names) is None
    exporter.report("a", turn(None))
    assert exporter.registry.get_sample_value(names[0], {"target": "a", "pool": "m"}) is None


@pytest.mark.parametrize("phase", ["waiting: no answer", OVERDUE_WINDOW, "stopped"])
def test_an_outage_asks_for_no_number_of_servers(phase: str) -> None:
    """The worker may wait for minutes for a server that is away, and reports nothing meanwhile."""
    exporter = Exporter()
    config = TargetConfig(name="a", url="sim://mlp", slo="p95=30ms")  # type: ignore[arg-type]
    advice = ScalingAdvice(accelerators=1, desired=3, reason="x")
    exporter.report("a", replace(turn(measurement()), scaling={"": advice}))

    def page(phase: str) -> str:
        worker = SimpleNamespace(config=config, phase=phase, advisor=None)
        return exporter.page({"a": worker}, {}).decode()  # type: ignore[dict-item]

    assert 'servetune_desired_accelerators{pool="",target="a"} 3.0' in page("running")
    assert 'servetune_desired_accelerators{pool="",target="a"} 3.0' in page(f"{NOT_STORED}: disk full")
    assert 'servetune_target_up{target="a"} 0.0' in page(f"{NOT_STORED}: disk full")
    assert "servetune_desired_accelerators{" not in page(phase)


def test_advice_that_nobody_gives_any_more_is_not_exported() -> None:
    """The file has no plan for the target any more, or the target was started anew and knows none yet."""
    exporter = Exporter()
    config = TargetConfig(name="a", url="sim://mlp", slo="p95=30ms")  # type: ignore[arg-type]
    latest = SimpleNamespace(gain=0.5, switch=SimpleNamespace(cost=0.1), pool={"r5n.large": 1})

    def page(advisor: object) -> str:
        worker = SimpleNamespace(config=config, phase="running", advisor=advisor)
        return exporter.page({"a": worker}, {}).decode()  # type: ignore[dict-item]

    assert page(SimpleNamespace(latest=latest)).count("\nservetune_advised_") == 3
    assert "\nservetune_advised_" not in page(None)


def test_changes_that_fail_for_good_are_told_for_good() -> None:
    """The circuit breaker tries ever fewer: how many failed within an hour soon says nothing."""
    exporter, memory, told = Exporter(), Memory(GuardLimits(), broken=1.0), []

    def failed_in_a_row(measured: Measurement | None) -> float:
        exporter.report("a", replace(turn(measured), failed_changes=memory.failed_changes))
        value = exporter.registry.get_sample_value("servetune_failed_changes_in_a_row", {"target": "a"})
        assert value is not None
        return value

    for number in range(2000):
        if not memory.breaker_open_for:
            memory.failed()
        memory.turn_passed()
        told.append(failed_in_a_row(None if number % 7 else measurement()))

    assert told[:3] == [1, 2, 3]
    assert told == sorted(told)
    assert told[-1] - told[-361] < 3  # an hour of windows of ten seconds
    memory.changed(0.0, ApplyCost.RELOAD)
    assert failed_in_a_row(measurement()) == 0
    assert "in_a_row{" not in exporter.page({}, {}).decode()
