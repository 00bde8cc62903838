"""The closed loop: a planner follows the rates that come, with accelerators, models and routes."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.cluster import Scenario, Session, simulate
from tuner.cluster.epochs import EpochRecord, EpochRun, simulate_epochs
from tuner.cluster.epochs.nexus import NexusEpochs
from tuner.cluster.goodput import goodput
from tuner.errors import InvalidInput


def scenario(**more: Any) -> Scenario:
    fields: dict[str, Any] = {
        "planner": "nexus",
        "accelerators": 8,
        "epoch_s": 15.0,
        "seconds": 90.0,
        "warmup_seconds": 0.0,
        "load_s": 0.2,
        "sessions": [
            Session(name="a", alpha_ms=2, beta_ms=10, slo_ms=100, rate=((0, 150), (30, 900), (60, 150))),
            Session(name="b", alpha_ms=3, beta_ms=12, slo_ms=150, rate=60),
        ],
    }
    return Scenario(**{**fields, **more})


def _until(run: EpochRun, time: float) -> EpochRecord:
    """The last interval that ends by then."""
    return [record for record in run.records if record.time <= time][-1]


@pytest.mark.parametrize("planner", ["nexus", "symphony"])
def test_the_cluster_follows_the_load(planner: str) -> None:
    """More accelerators under more load, fewer after it, and good answers in between."""
    run = simulate_epochs(scenario(planner=planner))

    calm, busy = (_until(run, time) for time in (30.0, 60.0))
    assert busy.accelerators > calm.accelerators
    assert run.records[-1].desired < busy.accelerators
    assert busy.bad < 0.01 * busy.requests
    assert sum(record.loaded for record in run.records) > 0
    assert run.outcome.requests == sum(session.requests for session in run.outcome.sessions) > 30_000
    assert run.mean_accelerators == pytest.approx(run.to_json()["mean_accelerators"])


def test_the_oblivious_planner_uses_all() -> None:
    """It shares the whole cluster out."""
    run = simulate_epochs(scenario(planner="oblivious", seconds=40.0))

    assert {record.accelerators for record in run.records} == {8}


@pytest.mark.compiled
@pytest.mark.parametrize("load_s", [0.0, 4.0])
def test_one_overload_asks_for_more_accelerators_once(load_s: float) -> None:
    """Twenty are needed; what was bad before the new ones had loaded their model asks for none."""
    session = Session(name="a", profile_ms=(100.0,), slo_ms=300, rate=((0, 20), (15, 200)))
    made = scenario(
        planner="symphony", accelerators=60, seconds=55.0, load_s=load_s, sessions=[session], epoch_s=15.0
    )

    run = simulate_epochs(made)

    scaled = [(record.time, record.desired) for record in run.records if record.loaded]
    assert len(scaled) == 1
    assert 20 <= scaled[0][1] <= 25
    assert run.records[-1].bad == 0


@pytest.mark.compiled
@pytest.mark.parametrize("kinds", [("t4", "a100"), ("a100", "t4")])
def test_every_session_keeps_an_accelerator_that_can_serve_it(kinds: tuple[str, str]) -> None:
    """One kind alone serves `a`; fewer are in use later, and it is served wherever that kind stands."""
    counts = {"t4": 6, "a100": 2}
    sessions = [
        _on_kinds("a", 40.0, {"t4": (1.0, 79.0), "a100": (1.0, 14.0)}),
        _on_kinds("b", 20.0, dict.fromkeys(kinds, (1.0, 19.0))),
    ]
    groups = [{"kind": kind, "count": counts[kind]} for kind in kinds]

    run = simulate_epochs(scenario(planner="symphony", accelerators=groups, sessions=sessions))

    assert run.records[-1].accelerators < sum(counts.values())
    assert run.outcome.sessions[0].bad_rate < 0.05


@pytest.mark.compiled
def test_no_batch_waits_for_a_kind_of_which_none_is_in_use() -> None:
    """Three slow accelerators are enough for the load, and then are in use without the fast one."""
    groups = [{"kind": "t4", "count": 9}, {"kind": "a100", "count": 1}]
    sessions = [_on_kinds("a", 800.0, {"t4": (2.0, 10.0), "a100": (0.5, 3.0)})]
    made = scenario(planner="symphony", accelerators=groups, sessions=sessions, epoch_s=10.0, seconds=20.0)

    first, second = simulate_epochs(made).records

    assert (first.accelerators, second.accelerators) == (10, 3)
    assert second.bad < 0.01 * second.requests


def _on_kinds(name: str, rate: float, lines: dict[str, tuple[float, float]]) -> Session:
    """A session with an SLO of 50 ms, and a line of execution times (ms) for each kind."""
    profiles = {kind: {"alpha_ms": alpha, "beta_ms": beta} for kind, (alpha, beta) in lines.items()}
    return Session.model_validate({"name": name, "slo_ms": 50, "rate": rate, "profiles": profiles})


def test_advice_need_not_be_followed() -> None:
    """Advice on a fixed cluster: fewer when it is idle, more than there are when it is overloaded."""
    run = simulate_epochs(scenario(planner="symphony", accelerators=2), fixed=True)

    assert {record.accelerators for record in run.records} == {2}
    assert _until(run, 30.0).desired == 1
    assert _until(run, 60.0).desired > 2


@pytest.mark.parametrize(("mib", "accelerators"), [(100.0, 1), (600.0, 2)])
def test_models_share_an_accelerator_only_if_they_fit_into_its_memory(mib: float, accelerators: int) -> None:
    """Two seldom asked models: together if small, each by itself if large."""
    sessions = [
        Session(name=name, alpha_ms=2, beta_ms=10, slo_ms=200, rate=30, memory_mib=mib) for name in "ab"
    ]

    run = simulate_epochs(scenario(sessions=sessions, memory_mib=1000.0, seconds=20.0))

    assert {record.accelerators for record in run.records} == {accelerators}


@pytest.mark.parametrize(
    ("planner", "said"),
    [
        ("symphony", "memory_mib: is 1000, but every accelerator loads all models under symphony: 1200 MiB"),
        ("oblivious", "memory_mib: is 1000, but oblivious, .* puts models of 1200 MiB together on accel"),
    ],
)
def test_models_that_a_planner_does_not_fit_into_the_memory_are_refused(planner: str, said: str) -> None:
    """Both on the only accelerator; with as much memory as they need they are served."""

    def made(mib: float) -> Scenario:
        session = Session(name="a", alpha_ms=2, beta_ms=10, slo_ms=200, rate=30, memory_mib=600.0, copies=2)
        return scenario(planner=planner, sessions=[session], accelerators=1, memory_mib=mib, seconds=5.0)

    with pytest.raises(InvalidInput, match=said):
        simulate_epochs(made(1000.0))
    assert simulate_epochs(made(1200.0)).outcome.requests > 0


@pytest.mark.parametrize("planner", ["nexus", "oblivious"])
def test_a_turn_takes_more_than_the_planned_batch_if_the_cap_is_the_profile(planner: str) -> None:
    """As without a planner: up to the largest batch of the session."""

    def most(cap: str) -> int:
        epochs = NexusEpochs(scenario(planner=planner, options={"cap": cap}))
        epochs.begin()
        return int(epochs.simulation.policy.batch.max())

    largest = max(one.latency.shape[1] - 1 for one in scenario().cluster_spec().sessions)
    assert most("profile") == largest > most("planned")


def test_the_same_seed_gives_the_same_run() -> None:
    """Planning adds no randomness."""
    one, two = (simulate_epochs(scenario(seconds=30.0)) for _ in range(2))

    assert one == two


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"planner": "clairvoyant"}, "use one of nexus"),
        ({"policy": "eager"}, "is nexus if nexus plans"),
    ],
)
def test_mistakes_are_named(fields: dict[str, Any], words: str) -> None:
    """A planner has its own policy."""
    with pytest.raises(ValueError, match=words):
        scenario(**fields)


@pytest.mark.parametrize("planner", ["nexus", "oblivious"])
def test_accelerators_of_several_kinds_are_refused(planner: str) -> None:
    """These planners would take all for the first kind; under `symphony` the scheduler knows the kinds."""
    kinds = [{"kind": "fast", "count": 1}, {"kind": "slow", "count": 2}]
    profiles = {"fast": {"alpha_ms": 1, "beta_ms": 5}, "slow": {"alpha_ms": 8, "beta_ms": 20}}
    sessions = [Session.model_validate({"name": "a", "profiles": profiles, "slo_ms": 100, "rate": 20})]
    unlike = {"accelerators": kinds, "sessions": sessions, "seconds": 2.0}

    with pytest.raises(InvalidInput, match="not for fast, slow"):
        simulate_epochs(scenario(planner=planner, **unlike))
    assert simulate_epochs(scenario(planner="symphony", **unlike)).outcome.bad_rate < 0.5


def test_the_goodput_is_that_under_the_planner() -> None:
    """Not that of its policy without it."""
    made = scenario(planner="oblivious", accelerators=4, seconds=10.0)

    found = goodput(made, tolerance=0.2)

    tried = made.scaled(found.multiplier)
    unplanned = tried.model_copy(update={"planner": None})
    assert found.outcome == simulate_epochs(tried).outcome != simulate(unplanned)
    with pytest.raises(InvalidInput, match="needs `accelerators` and `seconds`"):
        goodput(scenario(requests=100))


def test_a_planner_needs_a_time() -> None:
    """Not a number of requests."""
    with pytest.raises(InvalidInput, match="needs `accelerators` and `seconds`"):
        simulate_epochs(scenario(requests=100))


def test_a_planner_is_never_ignored() -> None:
    """`simulate` makes no plans, and `simulate_epochs` needs somebody who makes them."""
    planned = scenario()

    with pytest.raises(InvalidInput, match="planner: nexus does not plan here; use `simulate_epochs` of"):
        simulate(planned)
    with pytest.raises(InvalidInput, match=r"planner: there is none; use `tuner\.cluster\.simulate`"):
        simulate_epochs(planned.model_copy(update={"planner": None}))
