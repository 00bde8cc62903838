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
from tuner.control.decide.decision import Apply, Decision, Rollback
from tuner.control.decide.evidence import FailedRequests, margin, probability_kept
from tuner.control.decide.facts import Facts
from tuner.control.decide.limits import GuardLimits
from tuner.control.decide.load import Load, Loads
from tuner.control.decide.memory import Memory, Probation
from tuner.control.decide.orders import Orders
from tuner.control.decide.proposal import propose
from tuner.control.decide.rules import decide
from tuner.control.decide.validation import LOOKS_BACK, implausible, unusable
from tuner.duration import format_duration
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import QUANTILES, UNANSWERED, Measurement
from tuner.objective import Objective

__all__ = ["ControlLoop"]

UNLIKELY = 0.1
"""A change broke the SLO if its first usable window kept it with a smaller probability than this."""
FEW = {statistic: 5 / (1 - share) for statistic, share in QUANTILES.items()} | {"mean": 30.0}
"""Requests for a verdict: five of them lie beyond the quantile."""
LONGEST = 6
"""A window is lengthened this many times at most."""
RISEN = 2
"""A lengthened window ends once it has this many times the requests it waits for: the load has risen."""
ALARMS = ((12, 10.0), (3, 10.0))
"""Windows, and the multiple of the rate at which the error budget would just last."""


class ControlLoop:
    """Decides what one server is to run.

    Life: `observe` every event in its order. After a window, or where there should have been one, `decide`
    what is to be done. What comes of a decision is observed again.

    Args:
        space: The knobs.
        objective: What is minimised, and the SLO.
        agent: What learns and proposes.
        limits: How careful to be.
        explore: Whether a configuration may be proposed only to learn from it; not to those who only watch.
        rules: Decide from the facts; experiments have other tables than the usual one.

    Attributes:
        levels: The grid of load levels.
        memory: What is known of configurations under each load level, and of changes.
        orders: The operator's orders in force.
        loads: The present load, and those that the server had before.
        level: The present load level; None before the first window.
        last_good: What a restarted server gets back: the best configuration when a window last kept the SLO.
    """

    def __init__(
        self,
        space: KnobSpace,
        objective: Objective,
        agent: Agent,
        *,
        limits: GuardLimits | None = None,
        explore: Callable[[], bool] = lambda: True,
        rules: Callable[[Facts], Decision] = decide,
    ) -> None:
        self.space = space
        self.objective = objective
        self.agent = agent
        self.levels = LoadLevels()
        self.memory = Memory(limits or GuardLimits(), objective.broken)
        self.orders = Orders()
        self.level: int | None = None
        self.loads = Loads(self.levels)
        self.last_good: Configuration | None = None
        self._facts: Facts | None = None
        self._timed_rate = math.inf  # requests/s that were timed in the last usable window
        self._explore = explore
        self._rules = rules

    @property
    def load(self) -> Load:
        """The present load."""
        return self.loads.present

    def decide(self) -> Decision:
        """Return what the rules decide from the facts of the last window, or of its absence."""
        assert self._facts is not None, "a window comes first"
        return self._rules(self._facts)

    def restoration(self, current: Configuration, lost: Configuration | None = None) -> Apply | None:
        """Return what to restore on a server that was away; None if nothing.

        Args:
            current: What it runs now.
            lost: What it ran before, as far as that is known.
        """
        wanted, word, alike = self.last_good, "last good", self.space.same
        if wanted is not None and lost is not None and self.space.same(wanted, lost):
            # The grids of the user need not contain what it ran.
            wanted, alike = wanted.replace(**{n: lost[n] for n in wanted if n in lost}), self.space.equal
        if self.orders.pinned is not None:
            wanted, word, alike = self.orders.pinned, "pinned", self.space.equal
        if wanted is None or self.orders.paused or alike(current, wanted):
            return None
        reason = f"the server came back with another configuration; restoring the {word} one"
        return Apply(configuration=wanted, reason=reason, restores=True)

    def incumbent(self) -> Configuration | None:
        """Return what to leave a server with under the present load: the best by evidence of those tried.

        Those that kept the SLO come first; None if nothing was tried, or all of those are banned.
        """
        return self._decoded(self.memory.incumbent(self.level))

    def runs_last_good_unseen(self, running: Configuration) -> bool:
        """Whether the last good configuration runs, unseen under this load, where all else broke the SLO.

        So it is after a restart, until the first usable window.
        """
        here, good = self.memory.at(self.level), self.last_good
        if good is None or not self.space.same(good, running):
            return False
        return not here.good and self._index(running) not in here.configurations

    def bans(self) -> list[on.Banned]:
        """Return the bans in force, for the next life of the process."""
        return [on.Banned(level, self.space.decode(one), *rest) for level, one, *rest in self.memory.bans()]

    def window(self, seconds: float) -> float:
        """Return how long the next window is to be, s.

        It is longer than ``seconds`` where too few requests are timed in that time for a verdict on the SLO,
        or where the SLO itself is longer, and half as long while the error budget burns: fast over the last
        windows, and still in the newest.

        Args:
            seconds: The usual length.
        """
        least = seconds / 2 if all(self.memory.burning(*alarm) for alarm in ALARMS) else seconds
        least = min(max(least, self.objective.slo.latency), LONGEST * seconds)
        rate = min(self.load.rate, self._timed_rate)
        if not rate > 0:
            return least
        return min(max(FEW[self.objective.slo.statistic] / rate, least), LONGEST * seconds)

    def enough(self, seconds: float) -> float:
        """Return after how many requests the next window may end early: the load is not what it was.

        Args:
            seconds: The usual length of a window.
        """
        if not self.window(seconds) > max(seconds, self.objective.slo.latency):
            return math.inf
        share = min(self._timed_rate / self.load.rate, 1.0)
        return RISEN * FEW[self.objective.slo.statistic] / share

    def observe(self, event: on.Event) -> None:
        """Take in what happened; events come in the order of time."""
        memory = self.memory
        match event:
            case on.WindowEnded(now, m):
                self._end_ordered_probation(m.configuration)
                memory.window_passed(m.delayed(self.objective.slo.latency) / m.asked if m.asked else 0.0)
                self._take_window(now, m)
                memory.turn_passed()
            case on.Unseen(running, reason, overdue):
                self._end_ordered_probation(running)
                self._gather_facts(running, unused=reason, overdue=overdue)
                memory.turn_passed()
            case on.Ordered(orders):
                self.orders = orders
            case on.InForce():
                self._in_force(event)
            case on.Undone(configuration):
                self._lose(configuration)
            case on.Failed():
                self._fail(event)
            case on.Remembered():
                self._remember(event)
            case on.Banned(level, configuration, windows, times):
                if self.space.covers(configuration):  # the knobs may have other values now
                    memory.ban_again(level, self._index(configuration), windows, times)

    def _remember(self, window: on.Remembered) -> None:
        """Take in a window of an earlier life."""
        self.level, index = window.level, self._index(window.configuration)
        record = partial(self.memory.record, searching=window.counts, charged=window.counts, new=False)
        record(window.level, index, window.cost, window.probability_kept)
        if window.learn:
            state = State(level=window.level, configuration=index, rate=window.rate, seen=window.seen)
            self.agent.update(state, index, window.cost, state)

    def _in_force(self, change: on.InForce) -> None:
        """A change is in force; it is on probation unless it is a rollback, or windows have judged it."""
        memory = self.memory
        if change.cost is not None:
            memory.changed(change.now, change.cost, restores=change.restores)
        if change.previous is None:
            return
        probation = Probation(change.previous, memory.failed_requests, change.restores)
        memory.probation = None if change.judged else probation
        if change.back:
            memory.ban(self.level, self._index(change.previous))
            if self.last_good is not None and self.space.same(self.last_good, change.previous):
                self.last_good = self.incumbent()  # a restart must not bring back what was rolled back

    def _fail(self, change: on.Failed) -> None:
        """Take in a change that did not come about.

        What to go back to is asked for again, but what the server still refuses when the circuit breaker
        opens it may refuse for good: the next best has its turn then, and the change stays on probation.
        What was to be new is banned, also where nobody saw how it ended: the server may have died of it.
        """
        memory, decision, probation = self.memory, change.decision, self.memory.probation
        if not change.tried:
            memory.failed(repair=isinstance(decision, Apply) and decision.restores)
        if isinstance(decision, Rollback):
            if change.refused and memory.breaker_open_for:
                # Until the breaker has closed, and the window after that.
                beyond = memory.breaker_open_for + 2
                memory.ban(self.level, self._index(decision.configuration), least=beyond)
                memory.probation = probation
        elif not decision.restores:
            memory.ban(self.level, self._index(decision.configuration))

    def _lose(self, lost: Configuration) -> None:
        """Take in that something has undone what ran: on probation, the server may have died of it.

        Nobody need have seen that: one that begins anew at once, with what somebody has deployed since we
        came, looks as if it was changed by hand. An operator who has paused or pinned the server may have
        restarted it. What was seen to be good is put back, but not for ever: the server may die of it by now.
        """
        memory, good = self.memory, self.last_good
        if memory.probation is not None and not self.orders.standing:
            proven = good is not None and self.space.same(lost, good)
            memory.lost_in_a_row += proven
            if not proven or memory.lost_in_a_row >= memory.limits.breaker:
                memory.died()
                memory.ban(self.level, self._index(lost))
                if proven:
                    self.last_good = self.incumbent()
        memory.probation = None

    def _take_window(self, now: float, m: Measurement) -> None:
        """Gather the facts of a window, by what it shows of its configuration."""
        if not m.restarted:
            self.memory.lost_in_a_row = 0  # the server does not die of what it has lived with for a window
        reason = unusable(m, self.objective)
        if reason == LOOKS_BACK:
            self._take_mixed_window(m)
        elif reason:
            self._gather_facts(m.configuration, unused=reason, failing=self._unanswered(m))
        else:
            self._take_usable_window(now, m)

    def _unanswered(self, m: Measurement) -> str:
        """Return how a change on probation has failed in words, where no request was answered after it."""
        change = self._change_to_judge(m.configuration)
        if change is None or m.disturbed != (UNANSWERED,) or implausible(m):
            return ""
        if m.failures:
            return _failed(m) if change.failed_requests.share < 1 else ""  # that all fail is no chance
        # Those that came in the last moments may still be answered within the SLO.
        came, late = m.arrival_rate * m.seconds, min(self.objective.slo.latency / m.seconds, 1.0)
        return f"none of {came:.0f} requests was answered" if late**came < UNLIKELY else ""

    def _gather_facts(self, running: Configuration, **seen: Any) -> None:
        """Gather the facts for the rules.

        Args:
            running: What the server runs.
            **seen: The further fields of :class:`Facts`, as far as the window showed them.
        """
        memory, breaker = self.memory, ""
        if memory.breaker_open_for:
            next_try = f"the next try is {memory.breaker_open_for} windows away"
            breaker = f"{memory.failed_changes} changes in a row failed; {next_try}"
        self._facts = Facts(
            space=self.space,
            orders=self.orders,
            running=running,
            breaker=breaker,
            retreat=self._retreat(running),
            **seen,
        )

    def _take_mixed_window(self, m: Measurement) -> None:
        """Take in a window whose quantiles look back to another configuration: only its mean counts."""
        level, slo = self.loads.after(m, self.level).level, self.objective.slo
        good = self._best_other(level, self._index(m.configuration))
        broken = m.latency_mean > slo.latency and self.memory.probation is not None and good is not None
        if broken and not self._has_order(m.configuration):
            self.level = level  # under this load the configuration will be banned
        mean = f"even the mean, {format_duration(m.latency_mean)}, breaks the SLO"
        self._gather_facts(
            m.configuration, unused=LOOKS_BACK, mean_breaks=mean if broken else "", best_good=good
        )

    def _take_usable_window(self, now: float, m: Measurement) -> None:
        """Take in a window that shows what its configuration does under this load."""
        memory, slo, kept = self.memory, self.objective.slo, self.objective.kept(m)
        self._locate(m)
        index = self._index(m.configuration)
        state = State(level=self.load.level, configuration=index, rate=self.load.rate, seen=m.figures())
        self._learn(m, state)
        good, change = self._best_other(state.level, index), self._change_to_judge(m.configuration)
        failing, broken = self._judge_change(m, change, good) if change is not None else ("", False)
        if change is not None and not change.restores:
            memory.deaths = 0  # the server lives with it
        sign = "within" if kept else "breaks"
        self._gather_facts(
            m.configuration,
            failing=failing,
            broken=broken,
            best_good=good,
            standing=f"{slo.statistic} {m.text(slo.statistic)} {sign} {format_duration(slo.latency)}",
            ask=partial(
                propose,
                self.agent,
                self.space,
                memory,
                state,
                running=m.configuration,
                now=now,
                kept=kept,
                explore=self._explore(),
            ),
        )
        if not (failing or broken):
            memory.failed_requests = FailedRequests(m.failures, m.asked)
            memory.probation = None if change is not None else memory.probation
            memory.stays(state.level, index, judged=change is not None)

    def _locate(self, m: Measurement) -> None:
        """Find the load that a usable window belongs to, and its level."""
        self.loads.observe(m, self.level)
        self._timed_rate = m.timed / m.seconds
        self.level = self.load.level

    def _learn(self, m: Measurement, state: State) -> None:
        """Record a usable window in the memory, and let the agent learn from it."""
        cost, probability = self.objective.cost(m), probability_kept(m, self.objective.slo)
        searching = self._explore() and not (self.memory.failed_changes or self.orders.standing)
        self.memory.record(state.level, state.configuration, cost, probability, searching=searching)
        self.agent.update(state, state.configuration, cost, state)
        if self.objective.kept(m):
            self.last_good = self.incumbent() or self._decoded(state.configuration)

    def _change_to_judge(self, running: Configuration) -> Probation | None:
        """Return the change that a window judges; None without one, or where an order decides."""
        return None if self._has_order(running) else self.memory.probation

    def _judge_change(
        self, m: Measurement, change: Probation, good: Configuration | None
    ) -> tuple[str, bool]:
        """Return what failed after a change, in words, and whether it surely broke the SLO.

        Args:
            m: The first usable window after it.
            change: The change.
            good: What to go back to; without it a broken SLO is no reason.
        """
        failed = FailedRequests(m.failures, m.asked).more_than(change.failed_requests)
        broken = good is not None and margin(m, self.objective.slo).probability_kept < UNLIKELY
        return _failed(m) if failed else "", broken

    def _best_other(self, level: int | None, index: int) -> Configuration | None:
        """Return what to go back to: the best that keeps the SLO, if that is not what runs.

        If all that do are banned, it is what ran before.
        """
        memory, change = self.memory, self.memory.probation
        good = [c for c in memory.at(level).good if c != index]
        best = self._decoded(memory.best_of(level, memory.not_banned(level, good)))
        if change is None:
            return best
        if good and (best is None or self.space.same(best, change.previous)):
            return change.previous  # the grids of the user need not contain what ran before the first change
        return best

    def _retreat(self, running: Configuration) -> Configuration | None:
        """Return what ran before a change on probation, or the best other where that is banned."""
        change = self.memory.probation
        if change is None:
            return None
        if self._index(change.previous) not in self.memory.banned(self.level):
            return change.previous
        return self._best_other(self.level, self._index(running)) or change.previous

    def _has_order(self, running: Configuration) -> bool:
        """Whether an order of the operator decides what happens to a server that runs a configuration."""
        back = self.orders.rollback
        return self.orders.standing or (back is not None and not self.space.equal(back, running))

    def _end_ordered_probation(self, running: Configuration) -> None:
        """End the probation of a configuration that the operator has pinned: it is not ours to judge."""
        pinned, back = self.orders.pinned, self.orders.rollback
        wanted = [one for one in (pinned, back) if one is not None]
        if pinned and not self.orders.paused and all(self.space.same(one, running) for one in wanted):
            self.memory.probation = None

    def _index(self, configuration: Configuration) -> int:
        """Return the number of the configuration that stands for what ran."""
        return int(self.space.canonical[self.space.encode(self.space.nearest(configuration))])

    def _decoded(self, index: int | None) -> Configuration | None:
        return self.space.decode(index) if index is not None else None


def _failed(m: Measurement) -> str:
    return f"{m.failures} requests failed"
