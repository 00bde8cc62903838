"""The control loop without I/O: (now, measurement) -> Apply, Hold or Rollback, with a reason.

Drivers own time and the server; the loop owns the decision. It asks the agent where to go, and the guard
whether that may be. The same loop runs live and over the simulator, and recorded measurements replay to
the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.control.decide.decision import Apply, Decision, Hold, Rollback
from tuner.control.decide.guard import Guard, GuardLimits, GuardState
from tuner.control.decide.ledger import Ledger
from tuner.control.decide.orders import Orders
from tuner.control.decide.payback import Payback
from tuner.control.decide.plausible import implausible
from tuner.duration import format_duration
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective

__all__ = ["ControlLoop"]


class ControlLoop:
    """Decides after every window.

    Life: `decide` is called once per window. When it returns Apply or Rollback the driver applies it
    and calls `changed` and then `applied` or `taken_back`, or else `failed`. When the server was away,
    `returned` says what to restore. What an operator wants stands in ``orders`` and comes before everything
    else.

    Args:
        space: The knobs.
        objective: What is minimised, and the SLO.
        agent: What learns and proposes.
        limits: How careful to be.
        levels: The grid of load levels.
        learn: False leaves the agent as it is.
        explore: False never proposes a configuration only to learn from it: for those who only watch.
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
    ) -> None:
        self.space = space
        self.objective = objective
        self.agent = agent
        self.limits = limits or GuardLimits()
        self.guard = Guard(self.limits)
        self.ledger = Ledger()
        self.payback = Payback(objective.broken)
        self.level: int | None = None
        self.last_good: Configuration | None = None
        self.orders = Orders()
        self.levels = levels or LoadLevels()
        self._learn = learn
        self._explore = explore
        self._before_change: tuple[Configuration, float] | None = None
        self._failure_share = 0.0
        self._lost = 0.0  # windows lost to changes that are not charged yet

    def decide(self, now: float, measurement: Measurement) -> Decision:
        """Take in one window and say what to do.

        Args:
            now: The time of the decision on the measurement's clock, s.
            measurement: The window that has just ended.
        """
        return self._braked(self._decide(now, measurement))

    def _braked(self, decision: Decision) -> Decision:
        """Leave a decision as it is, unless changes have failed one after the other."""
        if not self.guard.breaker.window() or isinstance(decision, Hold) or self.orders.rollback is not None:
            return decision
        return Hold(reason=str(self.guard.breaker))

    def _decide(self, now: float, measurement: Measurement) -> Decision:
        """Take in one window and say what to do if changes come about."""
        self._lost += self.payback.window(measurement.start, measurement.end)
        ordered = self._ordered(measurement.configuration)
        if reason := self._unusable(measurement):
            return ordered or Hold(reason=f"window not used: {reason}")
        if reason := self._incredible(now, measurement):
            return ordered or self._blind(reason)
        if measurement.quantiles_mixed and self.objective.slo.statistic != "mean":
            return ordered or self._judge_by_the_mean(measurement)
        level = self.level = self.levels.level(measurement.arrival_rate, self.level)
        self.payback.load(level, measurement.arrival_rate * (measurement.end - measurement.start))
        index = self._index(measurement.configuration)
        state = State(level=level, configuration=index, rate=measurement.arrival_rate)
        kept = self._learn_from(measurement, state)
        frozen = self.guard.freeze.usable()
        if ordered is not None:
            return ordered
        return self._judge(measurement, state, kept) or self._go_on(
            now, measurement, state, kept, frozen=frozen
        )

    def _go_on(
        self, now: float, measurement: Measurement, state: State, kept: bool, *, frozen: bool
    ) -> Decision:
        """Say what to do when there is nothing to take back."""
        self._failure_share = _failure_share(measurement)
        if frozen:
            return Hold(reason=f"{self.guard.freeze}; {self._standing(measurement)}")
        if self.guard.must_hold():
            return Hold(reason=f"cooling down after a change; {self._standing(measurement)}")
        return self._choose(now, measurement, state, kept)

    def _learn_from(self, measurement: Measurement, state: State) -> bool:
        """Tell everybody what a window cost; return whether it kept the SLO."""
        cost, kept = self.objective.cost(measurement), self.objective.kept(measurement)
        self._book(state.level, state.configuration, cost, kept)
        if self._learn:
            self.agent.update(state, state.configuration, cost, state)
        if kept:
            self.last_good = self.incumbent()
        return kept

    def _book(self, level: int, configuration: int, cost: float, kept: bool) -> None:
        """Write a window down, and charge it to the error budget if there was something to lose."""
        charged = self._lost + (not kept) if self.ledger.achievable(level) else 0.0
        self._lost = 0.0
        self.guard.window(charged=charged)
        self.ledger.record(level, configuration, cost, kept)
        good = bool(self.ledger.good(level)) and self._steady(level, configuration)
        self.guard.search.record(level, self.ledger.least(level), good=good)

    def _steady(self, level: int, configuration: int) -> bool:
        """Whether nothing is known to speak against leaving the server as it is under a load."""
        trial = self.ledger.trial(level, configuration)
        return trial is None or trial.steady

    def changed(self, now: float, cost: ApplyCost) -> None:
        """The server runs what was decided; getting there cost it so much."""
        self.guard.changes.record(now, cost)
        self.guard.breaker.succeeded()
        if cost is not ApplyCost.FREE:
            self.payback.changed(cost)

    def applied(self, previous: Configuration) -> None:
        """The driver applied what was decided; ``previous`` is what the server ran before."""
        self._before_change = (previous, self._failure_share)
        self.guard.changed()

    def taken_back(self, previous: Configuration) -> None:
        """The driver rolled back; ``previous`` is what the server ran before, not to be tried again soon."""
        if self.level is not None:
            self.guard.rolled_back(self.level, self._index(previous))
        else:
            self.guard.overtaken()

    def overtaken(self) -> None:
        """Somebody else changed the server: what was on probation is not taken back any more."""
        self.guard.overtaken()

    def failed(self, decision: Apply | Rollback, *, refused: bool = True) -> None:
        """A change did not come about.

        Args:
            decision: That asked for it.
            refused: Whether the server refused and still runs what it ran; else nothing is certain.
        """
        self.guard.breaker.failed()
        if refused and isinstance(decision, Apply) and not decision.restores:
            self.disproved(decision)

    def disproved(self, decision: Apply | Rollback) -> None:
        """A change was tried, seen to be bad and undone before a window could show it."""
        if self.level is not None and decision.configuration in self.space:
            self.guard.rolled_back(self.level, self.space.encode(decision.configuration))

    def returned(self, current: Configuration) -> Apply | None:
        """The server was away and is back: say what to restore, if anything."""
        self.payback.unseen()
        wanted, word = self.last_good, "last good"
        if self.orders.pinned is not None:
            wanted, word = self.orders.pinned, "pinned"
        if wanted is None or self.orders.paused or self.space.nearest(current) == self.space.nearest(wanted):
            return None
        reason = f"the server came back with another configuration; restoring the {word} one"
        return Apply(configuration=wanted, reason=reason, restores=True)

    def remember(
        self, level: int, configuration: Configuration, cost: float, kept: bool, *, learn: bool = True
    ) -> None:
        """Take in a window of an earlier life without deciding anything.

        Args:
            level: The load level it was measured under.
            configuration: What the server ran.
            cost: Finite.
            kept: Whether it kept the SLO.
            learn: Whether the agent does not know of it yet.
        """
        index = self._index(configuration)
        self.level = level
        self._book(level, index, cost, kept)
        if learn and self._learn:
            state = State(level=level, configuration=index)
            self.agent.update(state, index, cost, state)

    def incumbent(self) -> Configuration | None:
        """Return what to leave a server with under the present load: of the tried ones the best.

        Those that kept the SLO come first; None if nothing was tried.
        """
        if self.level is None:
            return None
        tried = self.ledger.good(self.level) or self.ledger.tried(self.level)
        state = State(level=self.level, configuration=tried[0])
        return self.space.decode(self.agent.best(state, np.array(tried, dtype=np.int64)))

    def _ordered(self, found: Configuration) -> Decision | None:
        """What the operator wants of a server that runs a configuration, if anything."""
        nearest, orders = self.space.nearest, self.orders
        running = nearest(found)
        if orders.rollback is not None and nearest(orders.rollback) != running:
            return Rollback(configuration=orders.rollback, reason="the operator rolled back")
        if orders.paused:
            return Hold(reason=f"paused: {orders.paused}")
        if orders.pinned is None:
            return None
        if nearest(orders.pinned) == running:
            self.guard.overtaken()
            return Hold(reason="pinned by the operator")
        return Apply(configuration=orders.pinned, reason="pinned by the operator", restores=True)

    @staticmethod
    def _unusable(measurement: Measurement) -> str | None:
        """Why a measurement must not be acted on that is no fault of the metrics."""
        if measurement.disturbed:
            return "; ".join(measurement.disturbed)
        if measurement.requests == measurement.failures == measurement.arrival_rate == 0:
            return "no request came"
        return None

    def _incredible(self, now: float, measurement: Measurement) -> str | None:
        """Why the metrics are stale, missing or implausible."""
        if now - measurement.end > self.limits.stale_after:
            return f"it is {format_duration(now - measurement.end)} old"
        if problem := implausible(measurement):
            return problem
        if not math.isfinite(self.objective.cost(measurement)):
            return f"{self.objective.slo.statistic} or {self.objective.goal} was not measured"
        return None

    def unseen(self, running: Configuration, reason: str) -> Decision:
        """There is no window: the server, or what measures it, did not answer.

        Args:
            running: What it runs now.
            reason: Why nothing was seen, and what there is now.
        """
        self.payback.unseen()
        return self._braked(self._ordered(running) or self._blind(reason))

    def _blind(self, reason: str) -> Decision:
        """Hold; a change on probation that nothing can be seen of any longer is undone."""
        frozen, unjudged = self.guard.freeze.unusable(), self.guard.state is GuardState.PROBATION
        if frozen and unjudged and self._before_change is not None:
            previous = self._before_change[0]
            why = f"{self.guard.freeze.blind} windows without usable metrics ({reason})"
            text = self.space.format(previous)
            return Rollback(configuration=previous, reason=f"{why}: the change is undone, back to {text}")
        return Hold(reason=f"window not used: {reason}")

    def _judge_by_the_mean(self, measurement: Measurement) -> Decision:
        """Decide while the server's quantiles still look back to another configuration.

        Nothing can be learned yet, but a mean above the SLO's quantile breaks it beyond doubt.
        """
        level = self.levels.level(measurement.arrival_rate, self.level)
        good = self.ledger.good(level)
        broken = measurement.latency_mean > self.objective.slo.latency
        running = self._index(measurement.configuration)
        if self.guard.state is not GuardState.PROBATION or not broken or not good or good[0] == running:
            return Hold(reason="the server's quantiles still look back to the configuration before")
        self.level, target = level, self.space.decode(good[0])
        mean = format_duration(measurement.latency_mean)
        return Rollback(
            configuration=target,
            reason=f"even the mean, {mean}, breaks the SLO; back to {self.space.format(target)}",
        )

    def _index(self, configuration: Configuration) -> int:
        """The number of the configuration that stands for what ran."""
        return int(self.space.canonical[self.space.encode(self.space.nearest(configuration))])

    def _judge(self, measurement: Measurement, state: State, kept: bool) -> Rollback | None:
        """End the probation of the configuration in force, if it is on probation."""
        if self.guard.state is not GuardState.PROBATION:
            return None
        previous, failure_share = self._before_change or (None, 0.0)
        failing = _failure_share(measurement) > failure_share
        good = [c for c in self.ledger.good(state.level) if c != state.configuration]
        if failing and previous is not None:
            target = previous
            why = f"{measurement.failures} requests failed after the change"
        elif not kept and good:
            target = self.space.decode(good[0])
            why = f"the change broke the SLO ({self._standing(measurement)})"
        else:
            self.guard.passed()
            return None
        return Rollback(configuration=target, reason=f"{why}; back to {self.space.format(target)}")

    def _allowed(
        self, state: State, good: Sequence[int], *, explore: bool, spent: Collection[ApplyCost]
    ) -> np.ndarray:
        """What the agent may choose from, the configuration in force always among it.

        Configurations known to be good may be reached at once; untried ones only in bounded steps, and only
        when exploring or when no good one is known. What costs more changes of a kind than an hour has is
        left out.
        """
        allowed = np.array(good, dtype=np.int64)
        if explore or not allowed.size:
            allowed = np.union1d(allowed, self.space.region(state.configuration, self.limits.step))
        allowed = np.setdiff1d(self.space.canonical[allowed], self.guard.banned(state.level))
        if spent:
            here = self.space.decode(state.configuration)
            costs = [self.space.apply_cost(here, self.space.decode(int(c))) for c in allowed]
            allowed = allowed[[cost not in spent for cost in costs]]
        return np.union1d(allowed, [state.configuration]).astype(np.int64)

    def _choose(self, now: float, measurement: Measurement, state: State, kept: bool) -> Decision:
        """Ask the agent, within what is allowed."""
        standing = self._standing(measurement)
        # Where the SLO is broken and nothing known keeps it, to search is all that is left; and what breaks
        # it time and again spends the error budget by itself.
        spent = kept and self.guard.budget.spent and self._steady(state.level, state.configuration)
        # A broken SLO is repaired with what is known before anything new is tried.
        good = self.ledger.good(state.level)
        over = self.guard.search.over(state.level) and (kept or not good)
        good = good or ([state.configuration] if kept else self._remedies(state.level, over=over))
        repair = not kept and bool(good)
        # While the load moves it may go on doing so, and nothing is known of what it moves to.
        moving = kept and self.ledger.begins(state.level)
        explore = not (spent or repair or over or moving)
        used_up = self.guard.changes.spent(now)
        allowed = self._allowed(state, good, explore=explore, spent=used_up)
        best = self.agent.best(state, allowed)
        choice = self.agent.select(state, allowed) if explore and self._explore else best
        exploring = choice != best
        if choice == state.configuration:
            why = "the search is over, this is the best known" if over else "nothing better is expected"
            why = "the first window under this load" if moving else why
            why = f"{self.guard.budget}, not exploring" if spent else why
            return Hold(reason="; ".join([standing, *used_up.values(), why]))
        expected = float(self.agent.costs(state.level)[choice])
        known = self.ledger.trial(state.level, choice) is not None
        if known and (reason := self._not_worth(state, choice, expected, kept)):
            return Hold(reason=f"{standing}; {reason}")
        return Apply(
            configuration=self.space.decode(choice),
            reason=f"{standing}; {self._why(exploring, expected, known)}",
            exploring=exploring,
            expected=expected,
        )

    def _remedies(self, level: int, *, over: bool) -> list[int]:
        """What to choose from where nothing known keeps the SLO; nothing if only a search is left.

        What keeps it under the next heavier load may do so here, unless it was seen not to. When the search
        is over without success, a change but to the best of what was tried would only add to what is lost.
        """
        tried = self.ledger.tried(level)
        untried = [c for c in self.ledger.good_above(level) if c not in tried]
        return untried or (tried if over else [])

    def _not_worth(self, state: State, choice: int, expected: float, kept: bool) -> str | None:
        """Why switching to a known configuration gains too little to disturb the server, if it does."""
        trial = self.ledger.trial(state.level, state.configuration)
        assert trial is not None, "the window was recorded before"
        urgent = not kept and trial.failing
        if urgent and not self.guard.search.over(state.level):
            return None
        if not expected < trial.cost * (1 - self.limits.gain):
            return f"no known configuration is {self.limits.gain:.0%} better"
        change = self.space.apply_cost(*(self.space.decode(c) for c in (state.configuration, choice)))
        waits = self.limits.payback and not urgent
        after = self._afterwards(state.configuration, choice)
        if waits and not self.payback.worth(trial.cost - expected, change, after=after):
            return "a better one is known, but to change costs more than it gains before the load moves on"
        return None

    def _afterwards(self, running: int, choice: int) -> float:
        """What a change adds to the expected cost of a window under the load that follows, at least 0."""
        if (following := self.payback.following) is None:
            return 0.0
        costs = self.agent.costs(following.level)
        return float(np.nan_to_num(max(costs[choice] - costs[running], 0.0)))

    def _standing(self, measurement: Measurement) -> str:
        latency = format_duration(self.objective.latency(measurement))
        sign = "within" if self.objective.kept(measurement) else "breaks"
        slo = self.objective.slo
        return f"{slo.statistic} {latency} {sign} {format_duration(slo.latency)}"

    @staticmethod
    def _why(exploring: bool, expected: float, tried: bool) -> str:
        known = "untried" if not tried else "tried before"
        if math.isnan(expected):
            return f"exploring a configuration ({known}, nothing known)"
        verb = "exploring" if exploring else "least learned cost"
        return f"{verb} (expected cost {expected:.2f}, {known})"


def _failure_share(measurement: Measurement) -> float:
    total = measurement.requests + measurement.failures
    return measurement.failures / total if total else 0.0
