"""The control loop without I/O: it observes events, keeps the memory, and gathers the facts of each window.

Drivers own time and the server; the rules (:mod:`tuner.control.decide.rules`) own the decision. The same loop
runs live and over the simulator, and recorded measurements replay to the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply, Decision
from tuner.control.decide.facts import Facts, Verdict, propose
from tuner.control.decide.limits import GuardLimits
from tuner.control.decide.memory import Memory
from tuner.control.decide.orders import Orders
from tuner.control.decide.rules import decide
from tuner.control.decide.validation import implausible
from tuner.duration import format_duration
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective

__all__ = ["ControlLoop"]


class ControlLoop:
    """Knows one server, and what may be decided about it.

    Life: `observe` every event in its order. After a window, or where there should have been one, `decide`
    from its `facts`. What comes of a decision is observed again.

    Args:
        space: The knobs.
        objective: What is minimised, and the SLO.
        agent: What learns and proposes.
        limits: How careful to be.
        levels: The grid of load levels.
        learn: False leaves the agent as it is.
        explore: False never proposes a configuration only to learn from it: for those who only watch.
        rules: Decide from the facts; experiments have other tables than the usual one.
    """

    def __init__(
        self,
        space: KnobSpace,
        objective: Objective,
        agent: Agent,
        *,
        limits: GuardLimits | None = None,
        levels: LoadLevels | None = None,
        learn: bool = True,
        explore: bool = True,
        rules: Callable[[Facts], Decision] = decide,
    ) -> None:
        self.space = space
        self.objective = objective
        self.agent = agent
        self.limits = limits or GuardLimits()
        self.levels = levels or LoadLevels()
        self.memory = Memory(self.limits, objective.broken)
        self.orders = Orders()
        self.level: int | None = None
        self.last_good: Configuration | None = None
        self._facts: Facts | None = None
        self._learn = learn
        self._explore = explore
        self._rules = rules

    @property
    def facts(self) -> Facts:
        """Those of the last window, or of the last time that there was none."""
        assert self._facts is not None, "a window comes first"
        return self._facts

    def decide(self) -> Decision:
        """Return what the rules decide from the facts of the last window."""
        return self._rules(self.facts)

    @property
    def on_probation(self) -> bool:
        """Whether a change has not been judged yet."""
        return self.memory.probation is not None

    def restoration(self, current: Configuration) -> Apply | None:
        """Return what to restore on a server that was away and runs ``current``, if anything."""
        wanted, word = self.last_good, "last good"
        if self.orders.pinned is not None:
            wanted, word = self.orders.pinned, "pinned"
        if wanted is None or self.orders.paused or self.space.nearest(current) == self.space.nearest(wanted):
            return None
        reason = f"the server came back with another configuration; restoring the {word} one"
        return Apply(configuration=wanted, reason=reason, restores=True)

    def incumbent(self) -> Configuration | None:
        """Return what to leave a server with under the present load: the best of those tried.

        Those that kept the SLO come first; None if nothing was tried.
        """
        if self.level is None or not (tried := self._tried(self.level)):
            return None
        state = State(level=self.level, configuration=tried[0])
        return self.space.decode(self.agent.best(state, np.array(tried, dtype=np.int64)))

    def _tried(self, level: int) -> list[int]:
        record = self.memory.at(level)
        return record.good or record.tried

    def observe(self, event: on.Event) -> None:
        """Take in what happened; events come in the order of time."""
        memory = self.memory
        match event:
            case on.WindowEnded():
                self._window(event.now, event.measurement)
            case on.Unseen():
                self._unseen(event.running, event.reason)
            case on.Ordered():
                self.orders = event.orders
            case on.Changed():
                memory.changed(event.now, event.cost)
            case on.InForce(previous, back=False):
                memory.begin_probation(previous)
            case on.InForce(previous):
                self._ban(previous)
            case on.Overtaken():
                self._overtaken()
            case on.Failed():
                self._failed(event)
            case on.Away():
                memory.switching.unseen()
            case on.Remembered():
                self._remember(event)

    def _window(self, now: float, m: Measurement) -> None:
        """A window has ended."""
        self.memory.window_passed(m.start, m.end)
        base = self._begin_facts(m.configuration, m)
        if reason := _unused(m):
            self._facts = base(unused=reason)
        elif reason := self._unseen_because(now, m):
            self._blind(base, reason)
        elif m.quantiles_mixed and self.objective.slo.statistic != "mean":
            self._mixed(base, m)
        else:
            self._usable(base, now, m)

    def _unseen(self, running: Configuration, reason: str) -> None:
        """There is no window."""
        self.memory.switching.unseen()
        self._blind(self._begin_facts(running, None), reason)

    def _begin_facts(self, running: Configuration, measurement: Measurement | None) -> partial[Facts]:
        """Gather what is known in every case, and count one turn."""
        if self._kept_by_order(running):
            self._overtaken()
        memory, breaker = self.memory, ""
        if memory.pause > 0:
            # Every turn counts, also one without a usable window: the pause gives the server time, not data.
            memory.pause -= 1
            breaker = (
                f"{memory.failures} changes in a row failed; the next try is {memory.pause + 1} windows away"
            )
        return partial(
            Facts,
            space=self.space,
            limits=self.limits,
            orders=self.orders,
            running=running,
            measurement=measurement,
            breaker=breaker,
            probation=memory.probation.previous if memory.probation is not None else None,
        )

    def _blind(self, base: partial[Facts], reason: str) -> None:
        """Nothing was seen. Where the operator has given orders nothing depends on it."""
        if not self._ordered(base.keywords["running"]):
            self.memory.unusable()
        self._facts = base(unseen=reason, blind=self.memory.blind, frozen=self._frozen())

    def _mixed(self, base: partial[Facts], m: Measurement) -> None:
        """The quantiles look back to another configuration and teach nothing; the mean does not."""
        level = self._level(m)
        good = self.memory.at(level).good
        broken = m.latency_mean > self.objective.slo.latency and self.memory.probation is not None
        back = broken and bool(good) and good[0] != self._index(m.configuration)
        if back and not self._ordered(m.configuration):
            self.level = level
        self._facts = base(mean_breaks=back, best_good=self.space.decode(good[0]) if back else None)

    def _usable(self, base: partial[Facts], now: float, m: Measurement) -> None:
        """The window shows what the configuration does under this load."""
        memory, slo = self.memory, self.objective.slo
        level = self.level = self._level(m)
        memory.switching.load(level, m.arrival_rate * (m.end - m.start))
        index = self._index(m.configuration)
        state = State(level=level, configuration=index, rate=m.arrival_rate)
        cost, kept = self.objective.cost(m), self.objective.kept(m)
        memory.record(level, index, cost, kept)
        if self._learn:
            self.agent.update(state, index, cost, state)
        if kept:
            self.last_good = self.incumbent()
        memory.usable()
        sign = "within" if kept else "breaks"
        good = [c for c in memory.at(level).good if c != index]
        verdict, cooling = Verdict.NONE, False
        if not self._ordered(m.configuration):
            verdict = self._verdict(m, kept=kept, good=bool(good))
            cooling = self._settle(verdict, _failure_share(m))
        self._facts = base(
            verdict=verdict,
            best_good=self.space.decode(good[0]) if good else None,
            standing=f"{slo.statistic} {format_duration(self.objective.latency(m))} {sign} "
            f"{format_duration(slo.latency)}",
            frozen=self._frozen(),
            cooling=cooling,
            ask=partial(
                propose, self.agent, self.space, memory, state, now=now, kept=kept, explore=self._explore
            ),
        )

    def _verdict(self, m: Measurement, *, kept: bool, good: bool) -> Verdict:
        """What the window says about a change on probation."""
        if (probation := self.memory.probation) is None:
            return Verdict.NONE
        if _failure_share(m) > probation.failure_share:
            return Verdict.FAILING
        return Verdict.BROKEN if not kept and good else Verdict.PASSED

    def _settle(self, verdict: Verdict, failure_share: float) -> bool:
        """End a probation that was passed; return whether the server is to be left alone for this window."""
        memory = self.memory
        if verdict in (Verdict.FAILING, Verdict.BROKEN):
            return False
        if verdict is Verdict.PASSED:
            memory.end_probation(self.limits.cooldown)
        memory.failure_share = failure_share
        cooling = memory.cooldown > 0 and not memory.frozen
        memory.cooldown -= cooling
        return cooling

    def _remember(self, event: on.Remembered) -> None:
        """Take in a window of an earlier life; nothing is decided."""
        index = self._index(event.configuration)
        self.level = event.level
        self.memory.record(event.level, index, event.cost, event.kept)
        if event.learn and self._learn:
            state = State(level=event.level, configuration=index)
            self.agent.update(state, index, event.cost, state)

    def _ban(self, bad: Configuration) -> None:
        """A configuration was bad under the present load."""
        if self.level is None:
            self._overtaken()
        else:
            self.memory.ban(self.level, self._index(bad))

    def _failed(self, event: on.Failed) -> None:
        """A change failed; what the server refused, or a trial spoke against, is not tried again soon."""
        decision = event.decision
        if not event.tried:
            self.memory.failed()
        bad = event.tried or (event.refused and isinstance(decision, Apply) and not decision.restores)
        if bad and self.level is not None and decision.configuration in self.space:
            self.memory.ban(self.level, self.space.encode(decision.configuration))

    def _overtaken(self) -> None:
        if self.on_probation:
            self.memory.end_probation()

    def _ordered(self, running: Configuration) -> bool:
        """Whether an order decides what happens to a server that runs a configuration."""
        back = self.orders.rollback
        return self.orders.standing or (back is not None and not self._same(back, running))

    def _kept_by_order(self, running: Configuration) -> bool:
        """Whether the operator wants just what runs: then it is not ours to judge."""
        pinned, back = self.orders.pinned, self.orders.rollback
        wanted = pinned is not None and self._same(pinned, running) and not self.orders.paused
        return wanted and (back is None or self._same(back, running))

    def _frozen(self) -> str:
        if not self.memory.frozen:
            return ""
        return f"frozen until the metrics were good for {self.limits.thaw} windows (now {self.memory.thawed})"

    def _unseen_because(self, now: float, m: Measurement) -> str:
        """Why the metrics are stale, missing or implausible; empty if they are not."""
        if now - m.end > self.limits.stale_after:
            return f"it is {format_duration(now - m.end)} old"
        if problem := implausible(m):
            return problem
        if not math.isfinite(self.objective.cost(m)):
            return f"{self.objective.slo.statistic} or {self.objective.goal} was not measured"
        return ""

    def _level(self, m: Measurement) -> int:
        return self.levels.level(m.arrival_rate, self.level, foreign=m.foreign_share)

    def _index(self, configuration: Configuration) -> int:
        """Return the number of the configuration that stands for what ran."""
        return int(self.space.canonical[self.space.encode(self.space.nearest(configuration))])

    def _same(self, one: Configuration, other: Configuration) -> bool:
        return self.space.nearest(one) == self.space.nearest(other)


def _unused(m: Measurement) -> str:
    """Why a window says nothing about the configuration although its metrics are sound; empty if it does."""
    if m.disturbed:
        return "; ".join(m.disturbed)
    return "no request came" if m.requests == m.failures == m.arrival_rate == 0 else ""


def _failure_share(m: Measurement) -> float:
    total = m.requests + m.failures
    return m.failures / total if total else 0.0
