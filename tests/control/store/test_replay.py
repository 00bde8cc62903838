"""What a later life learns from the windows that an earlier one stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration
from tests.control.drive.driver_bed import FakeClock, FakeServer
from tests.control.store.lives_bed import BAD, GOOD, life, server
from tuner.agents.agent import State
from tuner.control import ControlLoop, Driver, Oversight, Watched
from tuner.control.store.journal import StoreJournal
from tuner.control.store.next_life import replay
from tuner.control.store.store import Store
from tuner.knobs import Configuration, Knob, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    yield store
    store.close()


def lived(store: Store, objective: Objective = OBJECTIVE) -> list[float]:
    """A change and two windows after it, every p95 25 ms; return what the windows cost."""
    target = server(lambda _: 0.025)
    standing = store.target("a", "fake://x/m", SPACE, GOOD, objective=objective.key)
    loop = ControlLoop(SPACE, objective, ScriptedAgent(GOOD, BAD))
    journal = StoreJournal(store, standing.id, objective)
    watched = Watched(target, target, target.clock)
    driver = Driver(watched, loop, window=5.0, journal=journal, notify=lambda _: None)
    return [driver.step().cost for _ in range(4)]


def remembered(store: Store, objective: Objective) -> tuple[ControlLoop, list[float]]:
    """A loop of a later life, and the costs that its agent learned."""
    agent = ScriptedAgent()
    loop = ControlLoop(SPACE, objective, agent)
    replay(store, 1, loop, learned=0)
    return loop, [cost for _, _, cost in agent.updates]


@pytest.mark.parametrize(
    ("objective", "good", "costs"),
    [
        (OBJECTIVE, True, [0.025 / 0.030] * 4),
        (dataclasses.replace(OBJECTIVE, slo=Slo(statistic="p95", latency=0.010)), False, [2.5] * 4),
        (dataclasses.replace(OBJECTIVE, slo=Slo(statistic="mean", latency=0.025)), True, [0.5] * 4),
        (dataclasses.replace(OBJECTIVE, goal="cpu"), True, [0.5] * 4),
        (dataclasses.replace(OBJECTIVE, goal="gpu"), True, []),  # which was not measured
    ],
)
def test_windows_are_judged_by_the_present_objective(
    store: Store, objective: Objective, good: bool, costs: list[float]
) -> None:
    """Not by the one that they were measured under: the file may have another SLO now."""
    lived(store)

    loop, learned = remembered(store, objective)

    assert learned == pytest.approx(costs)
    known = loop.memory.at(loop.level).configurations.values()
    assert {one.good for one in known} == ({good} if costs else set())


def test_what_a_change_cost_is_remembered(store: Store) -> None:
    """The window after it costs a later life as much; where an older store does not say, it is left out."""
    dear = dataclasses.replace(OBJECTIVE, change_cost=1.0)
    costs = lived(store, dear)

    again = remembered(store, dear)[1]
    with store.writing() as db:
        db.execute("UPDATE window SET change_requests = NULL WHERE number = 3")

    assert costs[2] > costs[1]
    assert again == pytest.approx(costs)
    assert remembered(store, dear)[1] == pytest.approx([*costs[:2], costs[3]])
    assert len(remembered(store, OBJECTIVE)[1]) == 4


def test_quantiles_that_look_back_are_no_quantiles_for_another_slo(store: Store) -> None:
    """An SLO on the mean used the window."""
    mean = dataclasses.replace(OBJECTIVE, slo=Slo(statistic="mean", latency=0.030))
    lived(store, mean)
    with store.writing() as db:
        db.execute("UPDATE window SET quantiles_mixed = 1 WHERE number = 3")

    assert len(remembered(store, mean)[1]) == 4
    assert len(remembered(store, OBJECTIVE)[1]) == 3


class Executes(FakeServer):
    """It says how long its executions take, under a load at the edge of its level."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        return dataclasses.replace(m, arrival_rate=290.0, compute_mean=0.004)


class Keeps(ScriptedAgent):
    """It keeps the states that it learns from."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[State] = []

    def update(self, state: State, configuration: int, cost: float, next_state: State) -> None:
        self.states += [state, next_state]
        super().update(state, configuration, cost, next_state)


def test_what_a_window_showed_is_learned_again(store: Store) -> None:
    """Its own load, beside which a level is coarse, and how long executions took."""
    first, _ = life(store, Executes(FakeClock(), lambda _: 0.020))
    for _ in range(2):
        first.step()
    agent = Keeps()
    loop = ControlLoop(SPACE, OBJECTIVE, agent)

    replay(store, 1, loop, learned=0)

    assert loop.levels.rate(loop.levels.level(290.0)) != pytest.approx(290.0, rel=0.02)
    assert [state.rate for state in agent.states] == pytest.approx([290.0] * 4)
    assert [state.seen["compute_mean"] for state in agent.states if state.seen] == [0.004] * 4


class Probed(FakeServer):
    """Of its requests fifty are timed in each window, which are near the bound."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        return dataclasses.replace(m, timed=50.0)


def test_a_later_life_is_as_sure_of_its_windows(store: Store) -> None:
    """What few requests showed uncertainly is not certain after a restart."""
    latencies = iter([0.020, 0.031, 0.020, 0.028, 0.032])
    target = Probed(FakeClock(), lambda _: next(latencies))
    first, _ = life(store, target)
    for _ in range(5):
        first.step()

    second, _ = life(store, target)

    (known,) = first.loop.memory.levels.values()
    assert known.configurations[SPACE.encode(GOOD)].sure < 3
    assert {level: one.configurations for level, one in second.loop.memory.levels.items()} == {
        level: one.configurations for level, one in first.loop.memory.levels.items()
    }


def test_windows_of_values_that_are_gone_are_not_told(store: Store) -> None:
    """With fewer values, what ran before must not speak for the nearest that is left."""
    target = server()
    first, _ = life(store, target, BAD)
    for _ in range(3):
        first.step()
    fewer = [Knob(name=k.name, grid=k.grid[:2], default=k.default, unit=k.unit) for k in SPACE.knobs]
    space = KnobSpace(fewer)
    loop = ControlLoop(space, OBJECTIVE, ScriptedAgent())

    seen = replay(store, 1, loop, learned=0)

    assert seen == 2
    assert loop.memory.at(loop.level).tried == [space.encode(GOOD)]


STRICT = dataclasses.replace(OBJECTIVE, slo=Slo(statistic="p95", latency=0.022))


def watched(store: Store, objective: Objective, *ran: Configuration) -> None:
    """A life in which somebody sets these; all but one take longer than the strict SLO allows."""
    target = server(lambda c: 0.020 if c == GOOD else 0.025)
    standing = store.target("a", "fake://x/m", SPACE, GOOD, objective=objective.key)
    loop = ControlLoop(SPACE, objective, ScriptedAgent(*[GOOD] * len(ran)))
    driver = Driver(
        Watched(target, target, target.clock),
        loop,
        window=5.0,
        oversight=Oversight(apply=False),
        journal=StoreJournal(store, standing.id, objective),
        resume=standing.state,
        notify=lambda _: None,
    )
    for target.running in ran:
        driver.step()


@pytest.mark.parametrize("before", [OBJECTIVE, STRICT])
def test_windows_of_another_objective_end_no_new_search(store: Store, before: Objective) -> None:
    """Nor do those that break its SLO spend its error budget. Where the objective stays, all do."""
    dear = [configuration(size, delay) for size in (2, 4, 8) for delay in (0.0, 0.002)]
    watched(store, before, *[GOOD, *dear] * 2)

    watched(store, STRICT)
    loop, _ = remembered(store, STRICT)

    memory, level, same = loop.memory, loop.level or 0, before == STRICT
    assert (len(memory.at(level).tried), memory.at(level).good) == (7, [SPACE.encode(GOOD)])
    assert (memory.search_over(level), memory.budget_spent) == (same, same)


def test_windows_since_the_objective_has_changed_count(store: Store) -> None:
    """For each later life that has the same."""
    watched(store, OBJECTIVE, GOOD, BAD)
    watched(store, STRICT, BAD)
    watched(store, STRICT)

    memory = remembered(store, STRICT)[0].memory

    assert memory.budget_text() == "1 of 2 windows of the SLO error budget used"
