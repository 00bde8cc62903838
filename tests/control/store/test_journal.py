"""A later life: what an earlier one left in the store, and what of it still counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tests.control.drive.driver_bed import (
    FakeClock,
    FakeServer,
    drive,
    silent,
)
from tests.control.store.lives_bed import BAD, GOOD, life, outcomes, server
from tuner.adapters import ApplyReport
from tuner.control import Apply, ControlLoop, Hold, Rollback, WindowRecord
from tuner.control.store.next_life import last_change
from tuner.control.store.store import Store
from tuner.errors import Unreachable
from tuner.knobs import Configuration, Knob, KnobSpace
from tuner.measurement import Measurement


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "s.db")
    yield store
    store.close()


def test_a_change_that_was_not_judged_is_judged_by_the_next_life(store: Store) -> None:
    """The daemon died between the change and the window that would have shown that it broke the SLO."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    assert [type(first.step().decision) for _ in range(2)] == [Hold, Apply]

    second, sentence = life(store, target)
    decision = second.step().decision

    assert sentence is not None
    assert "was judged; it is on probation again" in sentence
    assert sentence in [row["sentence"] for row in store.rows("SELECT sentence FROM event")]
    assert isinstance(decision, Rollback)
    assert decision.configuration == GOOD
    assert target.running == GOOD


def test_a_server_that_dies_of_a_change_and_comes_back_in_the_next_life(store: Store) -> None:
    """It was away for longer than anybody waited: the next life does not try the same again at once."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    assert [type(first.step().decision) for _ in range(2)] == [Hold, Apply]
    target.running = GOOD

    second, sentence = life(store, target, *[BAD] * 9)
    decisions = [second.step().decision for _ in range(4)]

    assert sentence is None
    assert [type(decision) for decision in decisions] == [Hold] * 4
    assert second.loop.memory.banned(second.loop.level or 0) == [SPACE.encode(BAD)]


def test_what_a_server_died_of_is_known_though_its_daemon_asked_it_in_vain_for_something_else(
    store: Store,
) -> None:
    """At its end it asks for the best configuration, which does not come about."""
    best = configuration(2)
    target = server(lambda c: {BAD: 0.045, best: 0.010}.get(c, 0.020))
    first, _ = life(store, target, best, BAD)
    assert [type(first.step().decision) for _ in range(2)] == [Apply, Apply]
    target.running, target.away_until = GOOD, math.inf
    first.finish()
    target.away_until = -math.inf

    second, _ = life(store, target)
    second.step()

    assert target.running == best
    assert second.loop.memory.banned(second.loop.level or 0) == [SPACE.encode(BAD)]


def test_a_server_that_dies_and_is_away_at_the_end_though_it_boots_with_the_best(store: Store) -> None:
    """Nothing is asked of it then: that would come about by its restart, and hide what it died of."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    assert [type(first.step().decision) for _ in range(2)] == [Hold, Apply]
    target.running, target.away_until = GOOD, math.inf
    first.finish()
    target.away_until = -math.inf

    second, _ = life(store, target, *[BAD] * 9)
    kinds = [type(second.step().decision) for _ in range(3)]

    assert kinds == [Hold] * 3
    assert second.loop.memory.banned(second.loop.level or 0) == [SPACE.encode(BAD)]


class LooksBack(FakeServer):
    """For a minute after a change its quantiles are those of the configuration before."""

    changed = -math.inf

    def apply(self, wanted: Configuration) -> ApplyReport:
        self.changed = self.clock.now()
        return super().apply(wanted)

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        if m.end - self.changed >= 60:
            return m
        old = {"latency_mean": 0.010, "latency_p50": 0.008, "latency_p95": 0.020, "latency_p99": 0.028}
        return dataclasses.replace(m, **old, quantiles_from="server", quantiles_mixed=True)  # type: ignore[arg-type]


def test_a_window_that_looks_back_judges_no_change(store: Store) -> None:
    """Nor does it teach a later life the old configuration's latency as that of the new one."""
    target = LooksBack(FakeClock(), server().p95)
    first, _ = life(store, target, GOOD, BAD)
    kinds = [type(first.step().decision) for _ in range(3)]
    assert kinds == [Hold, Apply, Hold]

    second, sentence = life(store, target)

    assert "look back" in store.rows("SELECT disturbed FROM window ORDER BY id")[2]["disturbed"]
    assert [row["observed"] for row in store.rows("SELECT observed FROM decision")] == [None] * 3
    assert second.loop.memory.at(second.loop.level).tried == [SPACE.encode(GOOD)]
    assert sentence is not None
    assert "was judged; it is on probation again" in sentence
    assert any(isinstance(second.step().decision, Rollback) for _ in range(12))
    assert target.running == GOOD


def test_a_window_that_cannot_be_true_is_not_learned_in_a_later_life(store: Store) -> None:
    """What the loop refused at the time."""
    target = server(lambda _: 9000.0)
    first, _ = life(store, target)
    assert "the mean latency is 4500 s" in first.step().decision.reason

    second, _ = life(store, target)

    assert second.loop.memory.visits() == {}


def test_how_long_ago_the_last_change_was_is_known_to_the_next_life(tmp_path: Path) -> None:
    """From when its end was seen; in an older store from when it was decided, and how long it took."""
    now = 1000.0
    store, target = Store(tmp_path / "s.db", now=lambda: now), server()
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    before = last_change(store, 1, 1000.0)
    apply = target.apply

    def slow(wanted: Configuration) -> ApplyReport:
        nonlocal now
        now += 40.0
        return apply(wanted)

    target.apply = slow  # type: ignore[method-assign]
    first.step()
    after = last_change(store, 1, 1050.0)
    with store.writing() as db:
        db.execute("UPDATE decision SET ended = NULL")
    unseen, earlier = last_change(store, 1, 1050.0), last_change(store, 1, 900.0)
    store.close()

    assert before == math.inf
    assert after == 10.0
    assert unseen == pytest.approx(49.9)
    assert earlier == 0.0  # the clock was set back


class Failing(FakeServer):
    """Some of a thousand requests fail in each window, by configuration."""

    def __init__(self, failures: dict[Configuration, int]) -> None:
        super().__init__(FakeClock(), lambda _: 0.020)
        self.failures = failures

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        return dataclasses.replace(m, failures=self.failures[self.running])


@pytest.mark.parametrize("after", [21, 60])
@pytest.mark.parametrize("killed", ["not", "before it was answered", "before it was judged"])
def test_a_change_is_judged_by_what_failed_before_it(store: Store, after: int, killed: str) -> None:
    """Requests that fail all the time are not blamed on a change, also if the daemon was killed meanwhile."""
    target = Failing({GOOD: 20, BAD: after})
    first, _ = life(store, target, GOOD, BAD)
    first.step()
    if killed == "before it was answered":
        silent(target, done=True)
    first.step()

    driver = first if killed == "not" else life(store, target)[0]
    decision = driver.step().decision

    assert isinstance(decision, Rollback) == (after > 21)


@pytest.mark.parametrize("what", ["judged", "rolled back", "changed by hand"])
def test_what_was_judged_or_is_not_in_force_is_not_judged_again(store: Store, what: str) -> None:
    """One window is enough, and a server that somebody else changed runs nothing of ours."""
    target = server((lambda _: 0.020) if what == "judged" else server().p95)
    first, _ = life(store, target, GOOD, BAD)
    for _ in range(2 if what == "changed by hand" else 3):
        first.step()
    if what == "changed by hand":
        target.running = configuration(2)

    assert target.running == {"judged": BAD, "rolled back": GOOD}.get(what, configuration(2))
    assert life(store, target)[1] is None


def test_replicas_that_were_brought_together_are_not_judged_again(store: Store) -> None:
    """They got what the others ran already: there is nothing to go back to."""
    target = server()
    first, _ = life(store, target)
    together = Apply(configuration=GOOD, reason="replicas differ", restores=True)
    first._actuator.carry_out(WindowRecord(number=1, measurement=measurement(), decision=together))

    assert outcomes(store) == ["applied"]
    second, sentence = life(store, target)
    assert sentence is None
    assert second.loop.memory.probation is None


def test_a_window_before_a_restoration_belongs_to_its_own_load(store: Store) -> None:
    """The daemon and the server were down, and the load rose: the loop knew that of the last life only."""
    better = configuration(2)
    target = server(lambda c: 0.010 if c == better else 0.020)
    first, _ = life(store, target, better)
    for _ in range(3):
        first.step()
    target.running = GOOD
    target.measure = lambda seconds, settle=0.0, enough=math.inf: measurement(  # type: ignore[method-assign, misc]
        running=target.running, rate=800.0
    )
    second, _ = life(store, target)
    decision = second.step().decision
    assert isinstance(decision, Apply)
    assert (decision.configuration, decision.restores) == (better, True)

    third, _ = life(store, target)

    assert third.loop.level == third.loop.levels.level(800.0)
    assert third.loop.memory.at(third.loop.level).tried == [SPACE.encode(GOOD)]


def test_bans_outlive_the_process(store: Store) -> None:
    """They wait for new windows, not for those that are replayed."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    assert [type(first.step().decision) for _ in range(4)] == [Hold, Apply, Rollback, Hold]
    (ban,) = first.loop.bans()
    assert (ban.configuration, ban.times) == (BAD, 1)

    second, _ = life(store, target, GOOD)

    assert second.loop.bans() == [ban]
    second.step()
    assert second.loop.bans() == [ban._replace(windows=ban.windows - 1)]


def test_what_a_change_taught_is_kept_at_once(store: Store) -> None:
    """Not only with the next decision, before which the process may end."""
    first, _ = life(store, target := server(), GOOD, BAD)
    assert [type(first.step().decision) for _ in range(3)] == [Hold, Apply, Rollback]

    second, _ = life(store, target, GOOD)

    assert [ban.configuration for ban in second.loop.bans()] == [BAD]
    assert second.loop.last_good == first.loop.last_good


def test_what_a_server_died_of_while_it_took_it_is_kept(store: Store) -> None:
    """Also if it is away for longer than anybody waits."""
    first, _ = life(store, target := server(), GOOD, BAD)
    first.step()
    silent(target, done=False)
    assert first.step().outcome == "failed"
    target.away_until = math.inf
    with pytest.raises(Unreachable):
        first.step()
    target.away_until = -math.inf

    second, _ = life(store, target, BAD)

    assert [ban.configuration for ban in second.loop.bans()] == [BAD]
    assert isinstance(second.step().decision, Hold)


class FailsNowAndThen(FakeServer):
    """Some of its requests fail, and some of its windows are disturbed."""

    failures = 0
    disturbed: tuple[str, ...] = ()

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        m = super().measure(seconds, settle=settle, enough=enough)
        return dataclasses.replace(m, failures=self.failures, disturbed=self.disturbed)


def test_what_failed_in_an_earlier_life_is_compared_with(store: Store) -> None:
    """What a restarted server gets back is not to blame for what failed before, too."""
    best = configuration(2)
    target = FailsNowAndThen(FakeClock(), lambda c: 0.010 if c == best else 0.020)
    first, _ = life(store, target, best)
    for failures in (0, 0, 1):
        target.failures = failures
        first.step()
    assert target.running == best
    target.running = GOOD

    second, _ = life(store, target)
    target.disturbed = ("a neighbour came",)
    restored = second.step().decision
    target.disturbed = ()
    assert isinstance(restored, Apply)
    assert restored.restores
    assert isinstance(second.step().decision, Hold)
    assert target.running == best


def test_bans_of_values_that_are_gone_or_of_another_objective_end(store: Store) -> None:
    """They say nothing of the configuration that is nearest now, and what broke one SLO may keep another."""
    target = server()
    first, _ = life(store, target, GOOD, BAD)
    for _ in range(4):
        first.step()
    fewer = KnobSpace(
        [Knob(name=k.name, grid=k.grid[:2], default=k.default, unit=k.unit) for k in SPACE.knobs]
    )
    loop = ControlLoop(fewer, OBJECTIVE, ScriptedAgent())
    for ban in first.loop.bans():
        loop.observe(ban)
    assert loop.bans() == []

    for objective, bans in ((OBJECTIVE.key, 1), ("another", 0)):
        standing = store.target("a", "fake://x/m", SPACE, target.current(), objective=objective)
        assert len(standing.state.bans) == bans


def test_windows_that_were_only_watched_belong_to_their_own_load(store: Store) -> None:
    """A daemon in mode `observe` went on after one that had tuned, and the load rose."""
    target = server()
    first, _ = life(store, target, GOOD)
    first.step()
    target.measure = lambda seconds, settle=0.0, enough=math.inf: measurement(  # type: ignore[method-assign, misc]
        running=target.running, rate=800.0
    )
    second, _ = life(store, target)
    second.observe()

    third, _ = life(store, target)

    assert third.loop.level == third.loop.levels.level(800.0)
    assert len(third.loop.memory.visits()) == 2


@pytest.mark.parametrize("away", [False, True])
def test_one_that_only_watches_decides_nothing_of_a_server_that_was_restarted(
    store: Store, away: bool
) -> None:
    """A daemon in mode `observe` went on after one that had tuned; its history said what to restore."""
    best = configuration(2)
    target = server(lambda c: 0.010 if c == best else 0.020)
    first, _ = life(store, target, best)
    for _ in range(3):
        first.step()
    assert first.loop.last_good == best
    target.running = GOOD
    standing = store.target("a", "fake://x/m", SPACE, target.current())
    watching, _ = drive(target, apply=False, resume=standing.state)
    target.away_until = target.clock.now() + 20.0 if away else -math.inf

    records = [watching.observe() for _ in range(2)]

    assert [type(record.decision) for record in records] == [Hold, Hold]
    assert watching.loop.last_good == best
