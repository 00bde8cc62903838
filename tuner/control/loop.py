"""The control loop without I/O: (now, measurement) -> Apply, Hold or Rollback, with a reason.

Drivers own time and the server; the loop owns the decision. It asks the agent where to go, and the guard
whether that may be. The same loop runs live and over the simulator, and recorded measurements replay to
the same decisions.
"""

from __future__ import annotations

import math

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.control.decision import Apply, Decision, Hold, Rollback
from tuner.control.guard import Guard, GuardLimits, GuardState
from tuner.control.ledger import Ledger
from tuner.duration import format_duration
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.objective import Objective

__all__ = ["ControlLoop"]


class ControlLoop:
    """Decides after every window.

    Life: `decide` is called once per window. When it returns Apply or Rollback the driver applies it
    and calls `applied` or `failed`. When the server was away, `returned` says what to restore.

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
        self.level: int | None = None
        self.last_good: Configuration | None = None
        self.levels = levels or LoadLevels()
        self._learn = learn
        self._explore = explore
        self._before_change: tuple[Configuration, float] | None = None
        self._failure_share = 0.0

    def decide(self, now: float, measurement: Measurement) -> Decision:
        """Take in one window and say what to do.

        Args:
            now: The time of the decision on the measurement's clock, s.
            measurement: The window that has just ended.
        """
        if reason := self._unusable(now, measurement):
            return Hold(reason=reason)
        if measurement.quantiles_mixed and self.objective.slo.statistic != "mean":
            return self._judge_by_the_mean(measurement)
        level = self.level = self.levels.level(measurement.arrival_rate, self.level)
        index = self._index(measurement.configuration)
        state = State(level=level, configuration=index)
        cost, kept = self.objective.cost(measurement), self.objective.kept(measurement)
        something_to_lose = self.ledger.achievable(level)
        self.guard.window(charged=something_to_lose and not kept)
        self.ledger.record(level, index, cost, kept)
        self.guard.search.record(level, self.ledger.least(level))
        if self._learn:
            self.agent.update(state, index, cost, state)
        if kept:
            self.last_good = self.incumbent()
        if self.guard.state is GuardState.PROBATION:
            rollback = self._judge(measurement, state, kept)
            if rollback is not None:
                return rollback
        self._failure_share = _failure_share(measurement)
        if self.guard.must_hold():
            return Hold(reason=f"cooling down after a change; {self._standing(measurement)}")
        return self._choose(measurement, state, kept)

    def applied(self, previous: Configuration) -> None:
        """The driver applied what was decided; ``previous`` is what the server ran before."""
        self._before_change = (previous, self._failure_share)
        self.guard.changed()

    def failed(self, decision: Apply | Rollback) -> None:
        """The server refused; it still runs what it ran."""
        if self.level is not None and decision.configuration in self.space:
            self.guard.rolled_back(self.level, self.space.encode(decision.configuration))

    def returned(self, current: Configuration) -> Apply | None:
        """The server was away and is back: say what to restore, if anything."""
        if self.last_good is None or self.space.nearest(current) == self.last_good:
            return None
        return Apply(
            configuration=self.last_good,
            reason="the server came back with another configuration; restoring the last good one",
            restores=True,
        )

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
        self.ledger.record(level, index, cost, kept)
        self.guard.search.record(level, self.ledger.least(level))
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

    def _unusable(self, now: float, measurement: Measurement) -> str | None:
        """Why a measurement must not be acted on."""
        if measurement.disturbed:
            return f"window not used: {'; '.join(measurement.disturbed)}"
        if now - measurement.end > self.limits.stale_after:
            return f"window not used: it is {format_duration(now - measurement.end)} old"
        if not math.isfinite(self.objective.cost(measurement)):
            return (
                f"window not used: {self.objective.slo.statistic} or {self.objective.goal} was not measured"
            )
        return None

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
        self.guard.rolled_back(level, running)
        target = self.space.decode(good[0])
        mean = format_duration(measurement.latency_mean)
        return Rollback(
            configuration=target,
            reason=f"even the mean, {mean}, breaks the SLO; back to {self.space.format(target)}",
        )

    def _index(self, configuration: Configuration) -> int:
        """The number of the configuration that stands for what ran."""
        return int(self.space.canonical[self.space.encode(self.space.nearest(configuration))])

    def _judge(self, measurement: Measurement, state: State, kept: bool) -> Rollback | None:
        """End the probation of the configuration in force."""
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
        self.guard.rolled_back(state.level, state.configuration)
        return Rollback(configuration=target, reason=f"{why}; back to {self.space.format(target)}")

    def _allowed(self, state: State, *, explore: bool) -> np.ndarray:
        """What the agent may choose from, the configuration in force always among it.

        Configurations known to keep the SLO under this load may be reached at once; untried ones only in
        bounded steps, and only when exploring or when no good one is known.
        """
        allowed = np.array(self.ledger.good(state.level), dtype=np.int64)
        if explore or not allowed.size:
            allowed = np.union1d(allowed, self.space.region(state.configuration, self.limits.step))
        allowed = np.setdiff1d(self.space.canonical[allowed], self.guard.banned(state.level))
        return np.union1d(allowed, [state.configuration]).astype(np.int64)

    def _choose(self, measurement: Measurement, state: State, kept: bool) -> Decision:
        """Ask the agent, within what is allowed."""
        standing = self._standing(measurement)
        spent = self.guard.budget.spent
        # A broken SLO is repaired with what is known before anything new is tried.
        repair = not kept and bool(self.ledger.good(state.level))
        over = kept and self.guard.search.over(state.level)
        explore = not (spent or repair or over)
        allowed = self._allowed(state, explore=explore)
        best = self.agent.best(state, allowed)
        choice = self.agent.select(state, allowed) if explore and self._explore else best
        exploring = choice != best
        if choice == state.configuration:
            why = "the search is over, this is the best known" if over else "nothing better is expected"
            return Hold(reason=f"{standing}; {f'{self.guard.budget}, not exploring' if spent else why}")
        expected = float(self.agent.costs(state.level)[choice])
        tried = self.ledger.trial(state.level, choice)
        if kept and tried is not None and not self._worth(state, expected):
            return Hold(reason=f"{standing}; no known configuration is {self.limits.gain:.0%} better")
        return Apply(
            configuration=self.space.decode(choice),
            reason=f"{standing}; {self._why(exploring, expected, tried is not None)}",
            exploring=exploring,
            expected=expected,
        )

    def _worth(self, state: State, expected: float) -> bool:
        """Whether switching to a configuration of known cost gains enough to disturb the server."""
        trial = self.ledger.trial(state.level, state.configuration)
        assert trial is not None, "the window was recorded before"
        return expected < trial.cost * (1 - self.limits.gain)

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
