"""Recommends a configuration for a server that was only watched: by a policy, or by the neural estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tuner.agents.agent import Agent, State, costs_at
from tuner.agents.load_levels import LoadLevels
from tuner.control.decide.evidence import SPREAD
from tuner.control.decide.validation import LOOKS_BACK, implausible
from tuner.duration import is_cut
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, KnobSpace, Role
from tuner.measurement import NOT_KNOWN, WITHOUT_TRAFFIC, Measurement, known, median_known
from tuner.objective import Objective, unsaturated

__all__ = ["Advice", "AdviceRow", "advise"]

WORTH = 1 - SPREAD
"""A change is recommended if it costs less than this share of the present cost."""

NOTABLE = 0.01
"""An estimate that is off by less than this share is not said to be above or below."""

SURE = 2.0
"""Deviations of an estimate beyond which the truth is hardly ever: 1 in 40 on either side."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdviceRow:
    """One configuration and what is expected of it."""

    name: str
    configuration: Configuration
    measured: float = NOT_KNOWN
    """The SLO's statistic as measured, s."""
    cut_off: float = NOT_KNOWN
    """What unanswered requests count with in it, s; NaN if there were none."""
    expected: float = NOT_KNOWN
    """The same as expected, s; NaN if a policy recommends: it knows only costs."""
    uncertainty: float = NOT_KNOWN
    """Standard deviation of its logarithm."""
    cost: float = NOT_KNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A recommendation and its reasons."""

    rate: float
    """The load it is for, requests/s."""
    change: bool
    """Whether to change anything."""
    configuration: Configuration
    """What to run."""
    rows: tuple[AdviceRow, ...]
    """The present configuration, the recommended one, the next best, and a better one that is too unsure."""
    reasons: tuple[str, ...]
    """Why, how sure that is, and where it comes from."""

    def to_json(self) -> dict[str, object]:
        """Return plain values for a file."""
        rows = [
            {
                "name": row.name,
                "configuration": dict(row.configuration),
                "measured_ms": known(row.measured * 1e3, 3),
                "cut_off_ms": known(row.cut_off * 1e3, 3),
                "expected_ms": known(row.expected * 1e3, 3),
                "uncertainty": known(row.uncertainty, 3),
                "cost": known(row.cost),
            }
            for row in self.rows
        ]
        return {
            "rate": self.rate,
            "change": self.change,
            "configuration": dict(self.configuration),
            "rows": rows,
            "reasons": list(self.reasons),
        }


def advise(
    space: KnobSpace,
    objective: Objective,
    present: Configuration,
    watched: Sequence[Measurement],
    *,
    agent: Agent | None = None,
) -> Advice:
    """Recommend a configuration for the load that was watched.

    Args:
        space: The knobs.
        objective: What is minimised, on the server's machine.
        present: What the server runs; it need not be one of the space's configurations.
        watched: Windows; those in which it ran something else are left out.
        agent: A trained policy, which learns from the windows; without one the neural estimator recommends.

    Raises:
        InvalidInput: No window can be used.
    """
    problems = [_problem(space, objective, m, present) for m in watched]
    quiet = [m for m, problem in zip(watched, problems, strict=True) if not problem]
    if not quiet:
        why = "; ".join(sorted(set(problems)))
        if all(m.arrival_rate == 0 for m in watched):
            raise InvalidInput("TARGET", "no request came while it was watched", WITHOUT_TRAFFIC)
        raise InvalidInput("TARGET", f"no window could be used ({why})", "see --rate and --window")
    rate = float(np.median([m.arrival_rate for m in quiet]))
    now = AdviceRow(
        name="now",
        configuration=present,
        measured=float(np.median([objective.latency(m) for m in quiet])),
        cut_off=median_known(m.cut_off for m in quiet),
        cost=float(np.median([objective.cost(m) for m in quiet])),
    )
    if agent is not None:
        return _from_policy(space, objective, now, agent, quiet, rate=rate)
    return _from_estimator(space, objective, now, quiet, rate)


def _problem(space: KnobSpace, objective: Objective, m: Measurement, present: Configuration) -> str:
    """Return why a window says nothing about what runs; empty if it does."""
    if m.disturbed:
        return "; ".join(m.disturbed)
    if not space.equal(m.configuration, present):
        return (
            f"in some the server ran {space.format(m.configuration)}, which was changed while it was watched"
        )
    if m.quantiles_mixed and objective.slo.statistic != "mean":
        return LOOKS_BACK
    return implausible(m) or ""


def _from_policy(
    space: KnobSpace,
    objective: Objective,
    now: AdviceRow,
    agent: Agent,
    quiet: Sequence[Measurement],
    *,
    rate: float,
) -> Advice:
    levels: LoadLevels = getattr(agent, "levels", None) or LoadLevels()  # a policy may have its own grid
    running = int(space.canonical[space.encode(space.nearest(now.configuration))])
    state = _state(levels, running, quiet, rate)
    elsewhere = _never_met(agent, state)  # then it answers from the nearest load that it met
    if not elsewhere and space.equal(space.decode(running), now.configuration):
        _let_learn(agent, objective, levels, running, quiet)
    index, costs = agent.best(state), costs_at(agent, state)
    cost = NOT_KNOWN if elsewhere else float(costs[index])
    best = AdviceRow(name="policy", configuration=space.decode(index), cost=cost)
    # Where the SLO's statistic was not measured, the policy says what the present configuration costs, too.
    present = float(costs[running]) if math.isnan(now.cost) else now.cost
    change = not space.equal(best.configuration, now.configuration) and (
        math.isnan(cost) or cost < present * WORTH
    )
    if not change:
        reason = "the policy would not change"
    elif math.isnan(cost):
        reason = "the policy knows no costs at this load; at the nearest that it knows this is the best"
    else:
        reason = f"the policy expects cost {cost:.2f} instead of {present:.2f}"
    return Advice(
        rate=rate,
        change=change,
        configuration=best.configuration if change else now.configuration,
        rows=(now, best),
        reasons=(reason,),
    )


def _never_met(agent: Agent, state: State) -> bool:
    """Whether a policy knows no costs at a load, or only those that were learned far from it."""
    extrapolates: Callable[[State], bool] = getattr(agent, "extrapolates", lambda _: False)
    return math.isnan(costs_at(agent, state)[agent.best(state)]) or extrapolates(state)


def _let_learn(
    agent: Agent, objective: Objective, levels: LoadLevels, present: int, quiet: Sequence[Measurement]
) -> None:
    """Let an agent learn from windows of a configuration, each at its own load, as the control loop does."""
    for m in quiet:
        if math.isfinite(cost := objective.cost(m)):  # else the SLO's statistic was not measured
            state = _state(levels, present, [m], m.arrival_rate)
            agent.update(state, present, cost, state)


class ServerBelief(NamedTuple):
    """What is thought of every configuration, by its number."""

    mean: np.ndarray  # (size,) expected logarithms of the costs
    deviation: np.ndarray  # (size,) their standard deviations
    unlike: tuple[str, ...]
    """In which respects the server is unlike those of the estimator's training."""


class Estimates(NamedTuple):
    """What the estimator expects of the configurations under the load."""

    space: KnobSpace
    slo: float
    """s"""
    cost: ServerBelief
    latency: ServerBelief
    """Of the objective of the least latency, whose cost is the latency over the SLO."""

    def row(self, number: int, name: str) -> AdviceRow:
        """Return what is expected of a configuration."""
        return AdviceRow(
            name=name,
            configuration=self.space.decode(number),
            expected=unsaturated(math.exp(self.latency.mean[number])) * self.slo,
            uncertainty=float(self.latency.deviation[number]),
            cost=math.exp(self.cost.mean[number]),
        )

    def hope(self, numbers: np.ndarray) -> bool:
        """Whether one of these configurations may keep the SLO."""
        lowest = (self.latency.mean - SURE * self.latency.deviation)[numbers].min()
        return unsaturated(math.exp(lowest)) <= 1.0


def _from_estimator(
    space: KnobSpace, objective: Objective, now: AdviceRow, quiet: Sequence[Measurement], rate: float
) -> Advice:
    """Compare what every configuration is expected to cost: by the network, and by what was measured."""
    from tuner.agents.rrl.neural.prior import estimable

    if not estimable(space, objective):
        knobs = ", ".join(space.names) or "none"
        return _nothing_known(now, rate, f"what its knobs ({knobs}) do is not known from other servers")
    present = int(space.canonical[space.encode(space.nearest(now.configuration))])
    cost = _belief(space, objective, present, quiet, rate)
    latency = _belief(space, replace(objective, goal="latency", change_cost=0.0), present, quiet, rate)
    if cost is None or latency is None:
        return _nothing_known(now, rate, "no window shows how long executions take")
    estimates = Estimates(space, objective.slo.latency, cost, latency)
    numbers = _comparable(space, now.configuration)
    order = numbers[np.argsort(cost.mean[numbers] + cost.deviation[numbers], kind="stable")].tolist()
    stay, best = estimates.row(present, "now"), estimates.row(order[0], "best")
    least = estimates.row(int(numbers[np.argmin(cost.mean[numbers])]), "unsure")
    now = replace(now, expected=stay.expected, uncertainty=stay.uncertainty)
    change = order[0] != present and _better(best, stay)
    shown = [best] if order[0] != present else []
    shown += [estimates.row(number, "then") for number in order[1:5] if number != present][:3]
    unsure = not change and _better(least, stay)
    if unsure and least.configuration not in [row.configuration for row in shown]:
        shown.append(least)
    return Advice(
        rate=rate,
        change=change,
        configuration=best.configuration if change else now.configuration,
        rows=(now, *shown),
        reasons=(
            _verdict(space, stay, best, least, change=change),
            *_caution(shown),
            *_certainty(objective, now, best, hope=estimates.hope(numbers), windows=len(quiet)),
            *_doubts(cost.unlike),
        ),
    )


def _nothing_known(now: AdviceRow, rate: float, why: str) -> Advice:
    """Recommend to leave what runs: watching one configuration shows nothing of the others by itself."""
    return Advice(
        rate=rate,
        change=False,
        configuration=now.configuration,
        rows=(now,),
        reasons=(
            f"{why}, so that nothing can be said about configurations that did not run: leave it",
            "`tuner run` tries others in small steps; --policy recommends from what was learned before",
        ),
    )


def _state(levels: LoadLevels, present: int, quiet: Sequence[Measurement], rate: float) -> State:
    """Return the state of a server at a rate, beside the neighbours that it had in some windows."""
    foreign = median_known(m.foreign_share for m in quiet)
    level = levels.level(rate, foreign=foreign)
    return State(level=level, configuration=present, rate=rate, seen=quiet[-1].figures())


def _belief(
    space: KnobSpace, objective: Objective, present: int, quiet: Sequence[Measurement], rate: float
) -> ServerBelief | None:
    """Return what every configuration is thought to cost at a rate, after some windows of one of them.

    None if no window shows what the estimator has to know.
    """
    from tuner.agents.rrl import RRL

    agent = RRL(space, objective=objective, synchronous=True)
    levels = LoadLevels()
    _let_learn(agent, objective, levels, present, quiet)
    state = _state(levels, present, quiet, rate)
    belief = ServerBelief(*agent.belief(state), agent.unlike(state))
    agent.close()
    return belief if agent.informed else None


def _comparable(space: KnobSpace, present: Configuration) -> np.ndarray:
    """Return the configurations in which the knobs that the estimator does not know have their value."""
    others = [i for i, knob in enumerate(space.knobs) if knob.role is Role.OTHER]
    here = space.coordinates[space.encode(space.nearest(present))]
    distinct = space.distinct
    return np.asarray(distinct[(space.coordinates[distinct][:, others] == here[others]).all(axis=1)])


def _doubts(unlike: Sequence[str]) -> list[str]:
    """Return in which respects the server is out of the range of the training, if it is."""
    if not unlike:
        return []
    return [f"the estimator was trained on no server like this one in {', '.join(unlike)}: it is less sure"]


def _better(one: AdviceRow, other: AdviceRow) -> bool:
    """Whether a configuration is expected to cost so much less than another that a change is worth it."""
    return one.cost < other.cost * WORTH


def _verdict(space: KnobSpace, stay: AdviceRow, best: AdviceRow, least: AdviceRow, *, change: bool) -> str:
    """Return in words what is to be done.

    Args:
        space: The knobs.
        stay: What runs, with its expected cost.
        best: What is best at its worst, one deviation above what is expected.
        least: What has the least expected cost, however unsure.
        change: Whether to change to the best.
    """
    if change:
        return f"{stay.cost / max(best.cost, 1e-9):.1f} times the cost of the best configuration: change it"
    if not _better(least, stay):
        return f"no configuration is expected to be {1 - WORTH:.0%} better: leave it"
    return (
        f"{space.format(least.configuration)} is expected to cost {1 - least.cost / stay.cost:.0%} less, "
        "but that is too unsure to change unseen: let `tuner run` try it"
    )


def _caution(shown: Sequence[AdviceRow]) -> list[str]:
    """Say why the first row that is shown is called best, where another has a lower expected cost."""
    if not shown or shown[0].name != "best" or shown[0].cost <= min(row.cost for row in shown):
        return []
    return [
        "best is what costs least if each costs as much more than expected as its estimate is unsure; "
        "a row with a lower cost is less sure"
    ]


def _certainty(
    objective: Objective, now: AdviceRow, best: AdviceRow, *, hope: bool, windows: int
) -> list[str]:
    """Say what the estimates rest on, and how sure they are.

    Args:
        objective: What is minimised.
        now: What runs, as measured and as expected.
        best: What is best.
        hope: Whether a configuration may keep the SLO.
        windows: Of what runs, that were measured.
    """
    comparable = math.isfinite(now.measured) and not is_cut(now.measured, now.cut_off)
    error = now.expected / now.measured - 1 if comparable else NOT_KNOWN
    sentences = [
        f"what is expected rests on {windows} window{'s' * (windows > 1)} of the present configuration and "
        "on an estimator that was trained on simulated servers; of the others nothing was measured here",
    ]
    if math.isfinite(error):
        side = "above" if error > 0 else "below"
        miss = f"within {NOTABLE:.0%} of" if abs(error) < NOTABLE else f"{abs(error):.0%} {side}"
        sentences.append(f"for the present configuration the estimate is {miss} what was measured")
    if not best.expected <= objective.slo.latency:
        sentences.append(
            f"it is not known whether a configuration keeps {objective.slo}, so unsure are the estimates: "
            "watch for longer (--windows), or let `tuner run` try some"
            if hope
            else f"no configuration is expected to keep {objective.slo}: it needs more capacity or less load"
        )
    return sentences
