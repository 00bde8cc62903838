"""The control loop without I/O: it observes events, keeps the memory, and gathers the facts of each window.

Drivers own time and the server; the rules (:mod:`tuner.control.decide.rules`) own the decision. The same loop
runs live and over the simulator, and recorded measurements replay to the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply, Decision
from tuner.control.decide.evidence import Load, margin
from tuner.control.decide.facts import Facts, Verdict, propose
from tuner.control.decide.limits import GuardLimits
from tuner.control.decide.memory import Memory
from tuner.control.decide.orders import Orders
from tuner.control.decide.rules import decide
from tuner.control.decide.validation import implausible
from tuner.duration import format_duration
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import QUANTILES, Measurement
from tuner.objective import Objective

__all__ = ["ControlLoop"]

SURE, ENOUGH = 0.9, 3
"""How likely a verdict on a change must be, and the windows after which the likelier one counts."""
FEW = {statistic: 5 / (1 - share) for statistic, share in QUANTILES.items()} | {"mean": 30.0}
"""Requests for a verdict: five of them lie beyond the quantile."""
LONGEST = 6
"""A window is lengthened this many times at most."""
ALARMS = ((12, 10.0), (3, 10.0))
"""Windows, and the multiple of the rate at which the error budget would just last."""


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
        self.load = Load()
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
        """Return what to leave a server with under the present load: the best by evidence of those tried.

        Those that kept the SLO come first; None if nothing was tried.
        """
        best = self.memory.incumbent(self.level) if self.level is not None else None
        return self.space.decode(best) if best is not None else None

    def window(self, seconds: float) -> float:
        """Return how long the next window is to be, s.

        It is longer than ``seconds`` where too few requests come in that time for a verdict on the SLO, and
        half as long while the error budget burns: fast over the last windows, and still in the newest.

        Args:
            seconds: The usual length.
        """
        least = seconds / 2 if all(self.memory.burning(*alarm) for alarm in ALARMS) else seconds
        if not self.load.rate > 0:
            return least
        return min(max(FEW[self.objective.slo.statistic] / self.load.rate, least), LONGEST * seconds)

    def observe(self, event: on.Event) -> None:
        """Take in what happened; events come in the order of time."""
        memory = self.memory
        match event:
            case on.WindowEnded():
                self._window(event.now, event.measurement)
            case on.Unseen():
                self._unseen(event)
            case on.Ordered():
                self.orders = event.orders
            case on.Changed():
                memory.changed(event.now, event.cost)
            case on.InForce(previous, back=False):
                memory.begin_probation(previous)
            case on.InForce(previous):
                self._ban(previous)
            case on.Overtaken():
                memory.end_probation()
            case on.Failed():
                self._failed(event)
            case on.Remembered():
                self._remember(event)

    def _window(self, now: float, m: Measurement) -> None:
        """A window has ended."""
        self._order(m.configuration)
        self.memory.window_passed(self._lost(m))
        if reason := _unused(m):
            self._facts = self._gather(m, unused=reason)
        elif reason := self._unseen_because(now, m):
            self._facts = self._gather(m, unseen=reason)
        elif m.quantiles_mixed and self.objective.slo.statistic != "mean":
            self._mixed(m)
        else:
            self._usable(now, m)
        self.memory.turn_passed()

    def _unseen(self, event: on.Unseen) -> None:
        """There is no window."""
        self._order(event.running)
        self._facts = self._gather(None, running=event.running, unseen=event.reason, overdue=event.overdue)
        self.memory.turn_passed()

    def _order(self, running: Configuration) -> None:
        """What the operator wants and has is not on probation."""
        if self._kept_by_order(running):
            self.memory.end_probation()

    def _gather(self, m: Measurement | None, **seen: Any) -> Facts:
        """Return the facts of a window: what is known in every case, and what was seen in this one."""
        memory = self.memory
        tries = f"the next try is {memory.pause} windows away"
        known = {
            "space": self.space,
            "limits": self.limits,
            "orders": self.orders,
            "measurement": m,
            "running": m.configuration if m is not None else None,
            "breaker": f"{memory.failures} changes in a row failed; {tries}" if memory.pause else "",
            "probation": memory.probation.previous if memory.probation is not None else None,
        }
        return Facts(**{**known, **seen})

    def _mixed(self, m: Measurement) -> None:
        """The quantiles look back to another configuration and teach nothing; the mean does not."""
        level = self._level(self.load.after(m), m)
        good = self._better(level, self._index(m.configuration), self.memory.at(level).good)
        broken = m.latency_mean > self.objective.slo.latency and self.memory.probation is not None
        if broken and good is not None and not self._ordered(m.configuration):
            self.level = level
        self._facts = self._gather(m, mean_breaks=broken, best_good=good)

    def _usable(self, now: float, m: Measurement) -> None:
        """The window shows what the configuration does under this load."""
        memory, slo = self.memory, self.objective.slo
        self.load = self.load.after(m)
        level = self.level = self._level(self.load, m)
        index = self._index(m.configuration)
        state = State(level=level, configuration=index, rate=self.load.rate, seen=m.figures())
        cost, kept, shown = self.objective.cost(m), self.objective.kept(m), margin(m, slo)
        memory.record(level, index, cost, 0.0 if m.failures else shown.kept)
        if self._learn:
            self.agent.update(state, index, cost, state)
        if kept:
            self.last_good = self.incumbent()
        good = self._better(level, index, memory.at(level).good)
        probation = memory.probation
        if probation is not None and not self._ordered(m.configuration):
            probation = memory.probation = probation.judged_by(shown)
        verdict = self._verdict(m, kept=kept, good=good is not None)
        sign = "within" if kept else "breaks"
        self._facts = self._gather(
            m,
            verdict=verdict,
            best_good=good,
            standing=f"{slo.statistic} {m.text(slo.statistic)} {sign} {format_duration(slo.latency)}",
            ask=partial(
                propose, self.agent, self.space, memory, state, now=now, kept=kept, explore=self._explore
            ),
        )
        if verdict is Verdict.PASSED:
            memory.end_probation()
        if verdict in (Verdict.NONE, Verdict.PASSED):
            memory.failure_share = _failure_share(m)

    def _better(self, level: int, index: int, good: list[int]) -> Configuration | None:
        """Return what to go back to: the best that keeps the SLO, if that is not what runs."""
        best = self.memory.best_of(level, [c for c in good if c != index])
        return self.space.decode(best) if best is not None else None

    def _lost(self, m: Measurement) -> float:
        """Return how many windows' requests the change before a window delayed for as long as the SLO."""
        requests = m.requests + m.failures
        return m.waiting / self.objective.slo.latency / requests if requests else 0.0

    def _verdict(self, m: Measurement, *, kept: bool, good: bool) -> Verdict:
        """What the windows since a change say about it."""
        probation = self.memory.probation
        if probation is None or self._ordered(m.configuration):
            return Verdict.NONE
        if _failure_share(m) > probation.failure_share:
            return Verdict.FAILING
        assert probation.seen is not None
        likely = probation.seen.kept
        if good and (likely < 1 - SURE or (likely < 0.5 and probation.windows >= ENOUGH)):
            return Verdict.BROKEN
        if good and likely < SURE and not kept and probation.windows < ENOUGH:
            return Verdict.UNCLEAR
        return Verdict.PASSED

    def _remember(self, event: on.Remembered) -> None:
        """Take in a window of an earlier life; nothing is decided."""
        index = self._index(event.configuration)
        self.level = event.level
        self.memory.record(event.level, index, event.cost, float(event.kept))
        if event.learn and self._learn:
            state = State(level=event.level, configuration=index)
            self.agent.update(state, index, event.cost, state)

    def _ban(self, bad: Configuration) -> None:
        """A configuration was bad under the present load."""
        self.memory.end_probation()
        if self.level is not None:
            self.memory.ban(self.level, self._index(bad))

    def _failed(self, event: on.Failed) -> None:
        """A change failed; what the server refused, or a trial spoke against, is not tried again soon."""
        decision = event.decision
        if not event.tried:
            self.memory.failed()
        bad = event.tried or (event.refused and isinstance(decision, Apply) and not decision.restores)
        if bad and self.level is not None and decision.configuration in self.space:
            self.memory.ban(self.level, self.space.encode(decision.configuration))

    def _ordered(self, running: Configuration) -> bool:
        """Whether an order decides what happens to a server that runs a configuration."""
        back = self.orders.rollback
        return self.orders.standing or (back is not None and not self._same(back, running))

    def _kept_by_order(self, running: Configuration) -> bool:
        """Whether the operator wants just what runs: then it is not ours to judge."""
        pinned, back = self.orders.pinned, self.orders.rollback
        wanted = pinned is not None and self._same(pinned, running) and not self.orders.paused
        return wanted and (back is None or self._same(back, running))

    def _unseen_because(self, now: float, m: Measurement) -> str:
        """Why the metrics are stale, missing or implausible; empty if they are not."""
        if now - m.end > self.limits.stale_after:
            return f"it is {format_duration(now - m.end)} old"
        if problem := implausible(m):
            return problem
        if not math.isfinite(self.objective.cost(m)):
            return f"{self.objective.slo.statistic} or {self.objective.goal} was not measured"
        return ""

    def _level(self, load: Load, m: Measurement) -> int:
        return self.levels.level(load.rate, self.level, foreign=m.foreign_share)

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
