"""Recommends a configuration for a server that was only watched: by a policy, or by a fitted simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.agents.agent import Agent, State
from tuner.agents.load_levels import LoadLevels
from tuner.control.decide.evidence import SPREAD
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, KnobSpace, Role
from tuner.measurement import NOT_KNOWN, Measurement, known
from tuner.objective import Objective

__all__ = ["Advice", "AdviceRow", "advise"]

WORTH = 1 - SPREAD
"""A change is recommended if it costs less than this share of the present cost; the control loop asks for
the same gain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdviceRow:
    """One configuration and what is expected of it."""

    name: str
    configuration: Configuration
    measured: float = NOT_KNOWN
    """The SLO's statistic as measured, s."""
    expected: float = NOT_KNOWN
    """The same as simulated, s; NaN if a policy recommends: it knows only costs."""
    cpu: float | None = None
    """Cores as simulated."""
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
    """The present configuration, the recommended one, and the next best."""
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return plain values for a file."""
        rows = [
            {
                "name": row.name,
                "configuration": dict(row.configuration),
                "measured_ms": known(row.measured * 1e3, 3),
                "expected_ms": known(row.expected * 1e3, 3),
                "cpu": row.cpu,
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
        present: What the server runs.
        watched: Windows in which it ran that.
        agent: A trained policy; without one a simulation is fitted to the windows.

    Raises:
        InvalidInput: No window can be used.
    """
    quiet = [m for m in watched if not m.disturbed]
    if not quiet:
        why = "; ".join(sorted({reason for m in watched for reason in m.disturbed}))
        raise InvalidInput("TARGET", f"no window could be used ({why})", "see --rate and --window")
    rate = float(np.median([m.arrival_rate for m in quiet]))
    now = AdviceRow(
        name="now",
        configuration=present,
        measured=float(np.median([objective.latency(m) for m in quiet])),
        cost=float(np.median([objective.cost(m) for m in quiet])),
    )
    if agent is not None:
        return _from_policy(space, now, agent, rate)
    return _from_simulation(space, objective, now, quiet, rate)


def _from_policy(space: KnobSpace, now: AdviceRow, agent: Agent, rate: float) -> Advice:
    level = LoadLevels().level(rate)
    index = agent.best(State(level=level, configuration=space.encode(now.configuration)))
    cost = float(agent.costs(level)[index])
    best = AdviceRow(name="policy", configuration=space.decode(index), cost=cost)
    change = best.configuration != now.configuration and not cost >= now.cost * WORTH
    reason = (
        f"the policy expects cost {cost:.2f} instead of {now.cost:.2f}"
        if change
        else "the policy would not change"
    )
    return Advice(
        rate=rate,
        change=change,
        configuration=best.configuration if change else now.configuration,
        rows=(now, best),
        reasons=(reason,),
    )


def _from_simulation(
    space: KnobSpace,
    objective: Objective,
    now: AdviceRow,
    quiet: Sequence[Measurement],
    rate: float,
) -> Advice:
    from tuner.envs.simulator.calibration import calibrate
    from tuner.envs.simulator.long_window import simulate
    from tuner.envs.twin import as_simulated, missing_role, simulated_knobs

    if (missing := missing_role(space)) is not None:
        raise InvalidInput(
            "--policy", f"without a knob of the role {missing} nothing can be simulated", "give a policy"
        )
    cores = objective.cores
    seen = [replace(m, configuration=as_simulated(space, m.configuration, cores)) for m in quiet]
    model = calibrate(seen, cores=cores)
    others = set(space.names) - {knob.name for knob in simulated_knobs(space)}  # they keep their value
    rows = []
    for index in space.distinct:
        configuration = space.decode(int(index))
        if any(configuration[name] != now.configuration[name] for name in others):
            continue
        m = simulate(model, as_simulated(space, configuration, cores), rate)
        rows.append(
            AdviceRow(
                name="",
                configuration=configuration,
                expected=objective.latency(m),
                cpu=round(m.cpu, 3),
                cost=objective.cost(m),
            )
        )
    rows.sort(key=lambda row: (row.cost, space.encode(row.configuration)))
    largest = max(max(m.batches, default=1) for m in quiet)
    extrapolated = largest < (space.value_of(Role.BATCH, rows[0].configuration) or 1.0)
    return _verdict(objective, now, rows, rate, largest if extrapolated else None)


def _verdict(
    objective: Objective, now: AdviceRow, rows: list[AdviceRow], rate: float, largest: int | None
) -> Advice:
    """Compare the best simulated configuration with the present one, as simulated too.

    Args:
        objective: What is minimised.
        now: The present configuration.
        rows: What the simulation expects, the best first.
        rate: The load, requests/s.
        largest: The largest batch that was seen; None if the best configuration makes no larger ones.
    """
    best = rows[0]
    simulated_now = next(row for row in rows if row.configuration == now.configuration)
    change = best.configuration != now.configuration and best.cost < simulated_now.cost * WORTH
    error = simulated_now.expected / now.measured - 1 if math.isfinite(now.measured) else NOT_KNOWN
    reasons = [
        f"{simulated_now.cost / max(best.cost, 1e-9):.1f} times the cost of the best configuration: change it"
        if change
        else f"no configuration is expected to be {1 - WORTH:.0%} better: leave it",
        f"the simulation is off by {error:+.0%} for the present configuration"
        if math.isfinite(error)
        else "the simulation could not be checked: the latency statistic was not measured",
    ]
    if largest is not None:
        reasons.append(
            f"only batches up to {largest} were seen, so the gain of larger ones is extrapolated: "
            "`tuner calibrate` or `tuner sweep` would measure it"
        )
    if not best.expected <= objective.slo.latency:
        reasons.append(
            f"no configuration is expected to keep {objective.slo}: it needs more capacity or less load"
        )
    shown = [row for row in rows[:5] if row.configuration != now.configuration][:4]
    named = [replace(row, name="best" if number == 0 else "then") for number, row in enumerate(shown)]
    present = replace(now, expected=simulated_now.expected, cpu=simulated_now.cpu)
    return Advice(
        rate=rate,
        change=change,
        configuration=best.configuration if change else now.configuration,
        rows=(present, *named),
        reasons=tuple(reasons),
    )
