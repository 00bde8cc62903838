"""A knob that the file adds: what an earlier life knew of changes still counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NoReturn

import pytest

from tests.builders import SPACE, ScriptedAgent
from tests.control.drive.driver_bed import FakeClock, FakeServer, silent
from tests.control.store.lives_bed import BAD, GOOD, life, outcomes
from tuner.control import Driver, Rollback
from tuner.control.store.store import Store
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement


class Failing(FakeServer):
    """With what is bad some of its requests fail."""

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        return replace(m, failures=60 if self.space.same(self.running, BAD) else 0)


def before() -> FakeServer:
    """A server of which the file names all knobs but the last."""
    target = Failing(FakeClock(), lambda _: 0.020)
    target.space = KnobSpace(SPACE.knobs[:2])
    target.running = target.space.nearest(GOOD)
    return target


def trying(store: Store, target: FakeServer) -> Driver:
    """A life whose second window asks for what is bad."""
    driver, _ = life(store, target)
    assert isinstance(driver.loop.agent, ScriptedAgent)
    driver.loop.agent.proposals = [target.space.encode(target.space.nearest(one)) for one in (GOOD, BAD)]
    driver.step()
    return driver


@pytest.fixture(params=[GOOD["instances"], 1.25], ids=["on_the_grid", "off_the_grid"])
def instances(request: pytest.FixtureRequest) -> float:
    """What the owner has set of the last knob."""
    return float(request.param)


def add(target: FakeServer, instances: float) -> None:
    """From now on the file names the last knob, too."""
    target.space = SPACE
    target.running = Configuration(instances=instances, **target.running)


def test_bans_stay(store: Store, instances: float) -> None:
    """What was rolled back is not tried again at once."""
    target = before()
    first = trying(store, target)
    assert isinstance([first.step().decision for _ in range(2)][1], Rollback)
    add(target, instances)

    second, _ = life(store, target)

    assert [(ban.configuration, ban.times) for ban in second.loop.bans()] == [(BAD, 1)]


@pytest.mark.parametrize("answered", [True, False])
def test_a_change_is_judged_that_nobody_had_judged(store: Store, answered: bool, instances: float) -> None:
    """Whether its end was seen or not: if it is in force, it is on probation. It is judged once."""
    target = before()
    first = trying(store, target)
    if not answered:
        silent(target, done=True)
    first.step()
    add(target, instances)

    second, sentence = life(store, target)
    decision = second.step().decision

    assert sentence is not None
    assert "on probation" in sentence
    assert isinstance(decision, Rollback)
    assert decision.configuration == target.running == GOOD.replace(instances=instances)
    assert store.rows("SELECT observed FROM decision ORDER BY id")[1]["observed"] is not None


def test_a_change_is_ours_in_the_middle_of_which_the_daemon_was_killed(
    store: Store, instances: float
) -> None:
    """Not something that somebody else has set."""
    target = before()
    first = trying(store, target)

    def die(wanted: Configuration) -> NoReturn:
        target.running = wanted
        raise KeyboardInterrupt

    target.apply = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.step()
    del target.apply
    add(target, instances)

    second, sentence = life(store, target)

    assert sentence is not None
    assert "which came about" in sentence
    assert outcomes(store)[1] == "applied"
    assert isinstance(second.step().decision, Rollback)
    assert target.running == GOOD.replace(instances=instances)
