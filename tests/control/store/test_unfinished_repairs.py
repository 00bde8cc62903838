"""A rollback, a restoration or a return to the best in the middle of which the daemon ends."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.builders import configuration
from tests.control.drive.driver_bed import FakeServer
from tests.control.store.lives_bed import BAD, GOOD, life, outcomes, server
from tuner.control import Apply, Driver, Hold, Rollback
from tuner.control.store.store import Store
from tuner.errors import Refused, TimedOut
from tuner.knobs import Configuration

BEST = configuration(2)


class Killed(BaseException):
    """The process is gone."""


def fails(target: FakeServer, error: BaseException, *, done: bool = False) -> None:
    """The next change of a server ends with an error, whether it was done or not; later ones do not."""
    apply = target.apply

    def fail(wanted: Configuration) -> NoReturn:
        target.apply = apply  # type: ignore[method-assign]
        if done:
            apply(wanted)
        raise error

    target.apply = fail  # type: ignore[method-assign]


def on_probation(store: Store, target: FakeServer) -> Driver:
    """A driver whose last change the next window finds to break the SLO."""
    driver, _ = life(store, target, GOOD, BAD)
    assert [type(driver.step().decision) for _ in range(2)] == [Hold, Apply]
    return driver


@pytest.mark.parametrize("ending", ["killed", "refused"])
def test_a_rollback_that_did_not_come_about_is_made_by_the_next_life(store: Store, ending: str) -> None:
    """A window has judged the change, but what it said has yet to be done; the agent alone might stay."""
    target = server()
    first = on_probation(store, target)
    fails(target, Killed() if ending == "killed" else Refused("out of memory"))
    if ending == "killed":
        with pytest.raises(Killed):
            first.step()
    else:
        assert isinstance(first.step().decision, Rollback)

    second, sentence = life(store, target)
    decision = second.step().decision

    assert sentence is not None
    assert "was taken back; it is on probation again" in sentence
    assert isinstance(decision, Rollback)
    assert target.running == GOOD
    assert [ban.configuration for ban in second.loop.bans()] == [BAD]
    assert outcomes(store) == [
        "held",
        "applied",
        "interrupted" if ending == "killed" else "failed",
        "applied",
    ]


def test_a_rollback_that_came_about_is_one(store: Store) -> None:
    """What was rolled back is not tried again, and nothing is on probation."""
    target = server()
    first = on_probation(store, target)
    fails(target, Killed(), done=True)
    with pytest.raises(Killed):
        first.step()

    second, sentence = life(store, target, BAD)
    decision = second.step().decision

    assert sentence is not None
    assert sentence.endswith("which came about")
    assert isinstance(decision, Hold)
    assert [ban.configuration for ban in second.loop.bans()] == [BAD]
    assert outcomes(store) == ["held", "applied", "applied", "held"]


def test_a_change_that_a_later_window_let_stay_is_not_judged_again(store: Store) -> None:
    """Its rollback failed, and then it kept the SLO after all."""
    target = server()
    first = on_probation(store, target)
    fails(target, Refused("out of memory"))
    assert isinstance(first.step().decision, Rollback)
    target.p95 = lambda _: 0.020
    assert isinstance(first.step().decision, Hold)

    second, sentence = life(store, target)

    assert sentence is None
    assert second.loop.memory.probation is None


@pytest.mark.parametrize("ending", [Killed(), Refused("out of memory"), TimedOut("no answer within 90 s")])
def test_a_restoration_that_did_not_come_about_is_made_by_the_next_life(
    store: Store, ending: BaseException
) -> None:
    """The server was restarted, and runs what it ran at first; the agent alone might stay there."""
    target = server(lambda c: 0.010 if c == BEST else 0.020)
    first, _ = life(store, target, BEST)
    for _ in range(3):
        first.step()
    assert target.running == BEST
    target.running, target.restarted = GOOD, True
    fails(target, ending)
    if isinstance(ending, Killed):
        with pytest.raises(Killed):
            first.step()
    else:
        assert first.step().outcome == "failed"

    second, _ = life(store, target)
    decision = second.step().decision

    assert isinstance(decision, Apply)
    assert decision.restores
    assert target.running == BEST


def test_what_somebody_set_after_a_failed_restoration_stays(store: Store) -> None:
    """While no daemon ran."""
    target = server(lambda c: 0.010 if c == BEST else 0.020)
    first, _ = life(store, target, BEST)
    for _ in range(3):
        first.step()
    target.running, target.restarted = GOOD, True
    fails(target, Refused("out of memory"))
    first.step()
    target.running = theirs = configuration(16, 0.01, 2)

    second, _ = life(store, target)
    second.step()

    assert target.running == theirs


@pytest.mark.parametrize("ending", [Killed(), TimedOut("no answer within 90 s")])
@pytest.mark.parametrize("late", [False, True])
def test_what_a_life_ended_with_is_not_on_probation(store: Store, ending: BaseException, late: bool) -> None:
    """Windows have judged it before. If one by chance breaks the SLO, nothing brings back what was tried."""
    target = server(lambda c: {BEST: 0.010, BAD: 0.029}.get(c, 0.020))
    first, _ = life(store, target, BEST, BEST, BAD)
    for _ in range(3):
        first.step()
    assert target.running == BAD
    fails(target, ending, done=not late)
    if isinstance(ending, Killed):
        with pytest.raises(Killed):
            first.finish()
    else:
        first.finish()

    second, sentence = life(store, target)
    target.running = BEST
    target.p95 = lambda c: 0.045 if c == BEST else 0.020
    decision = second.step().decision

    assert "it is on probation now" not in (sentence or "")
    assert second.loop.memory.probation is None
    assert not isinstance(decision, Rollback)
    assert second.loop.bans() == []


def test_a_window_that_was_only_watched_judges_no_change(store: Store) -> None:
    """The daemon ran in mode `observe` for a while: who changes the server again judges the change."""
    target = server()
    on_probation(store, target)
    watching, _ = life(store, target, apply=False)
    store.target("a", "fake://x/m", target.space, target.running, mode="observe")
    watching.observe()
    assert store.row("SELECT observed FROM decision WHERE outcome = 'applied'")["observed"] is None  # type: ignore[index]

    second, _ = life(store, target)
    decision = second.step().decision

    assert isinstance(decision, Rollback)
    assert target.running == GOOD
