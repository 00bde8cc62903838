"""Asks the agent where to go, within what the guard allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.agents.agent import Agent, Explains, State
from tuner.control.decide.memory import Memory
from tuner.knobs import ApplyCost, Configuration, KnobSpace

__all__ = ["Proposal", "propose"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What the agent would have the server run, and what is known of it."""

    choice: int
    """The number of the configuration."""
    moves: bool
    """Whether it is another than the one in force."""
    exploring: bool
    """Whether the configuration was drawn to learn from it, not because it is the best known."""
    expected: float
    """Its learned cost; NaN if nothing is known of it."""
    known: bool
    """Whether it was tried under this load."""
    clearly_better: bool
    """Whether, if it was tried, it costs less than the one in force by more than chance explains."""
    urgent: bool
    """Whether the configuration in force mostly breaks the SLO, and the search for another is still on."""
    basis: str
    """What the learned cost rests on, in words; empty if the agent cannot say."""
    stay: str
    """Why the agent would stay where it does, in words."""


class Leeway(NamedTuple):
    """What the guard leaves the agent to choose from."""

    reachable: list[int]
    """Configurations that it may choose wherever they lie: they were tried."""
    search: bool
    """Whether it may try others."""
    used_up: dict[ApplyCost, str]
    """The kinds of change whose limit for this hour is used up, each with a sentence."""
    why: str
    """Why nothing is searched, in words; empty where a broken SLO is only repaired, or in a search."""


def propose(
    agent: Agent,
    space: KnobSpace,
    memory: Memory,
    state: State,
    *,
    running: Configuration,
    now: float,
    kept: bool,
    explore: bool,
) -> Proposal:
    """Ask the agent where to go, within what is allowed.

    Args:
        agent: Chooses; it learns nothing from being asked.
        space: The knobs.
        memory: What is known.
        state: The load level, and the configuration in force.
        running: What the server runs; the grids need not contain it.
        now: s.
        kept: Whether the window kept the SLO.
        explore: False never draws a configuration only to learn from it.
    """
    configurations = memory.at(state.level).configurations
    present = configurations[state.configuration]
    leeway = _leeway(memory, state, now=now, kept=kept)
    allowed = _allowed(space, memory, state, leeway, running)
    best = agent.best(state, allowed)
    choice = agent.select(state, allowed) if leeway.search and explore else best
    known, moves = choice in configurations, choice != state.configuration
    expected = float(agent.costs(state.level)[choice]) if moves else present.cost
    basis = agent.basis(state, choice) if isinstance(agent, Explains) else ""
    why = leeway.why or "nothing better is expected" + (f" ({basis})" if basis else "")
    return Proposal(
        choice=choice,
        moves=moves,
        exploring=choice != best,
        expected=expected,
        known=known,
        clearly_better=known and memory.clearly_cheaper(state.level, choice, state.configuration),
        urgent=not kept and present.mostly_breaks and not memory.search_over(state.level),
        basis=basis,
        stay="; ".join([*leeway.used_up.values(), why]),
    )


def _leeway(memory: Memory, state: State, *, now: float, kept: bool) -> Leeway:
    """Return what the agent may choose from after a window, which kept the SLO or broke it."""
    record = memory.at(state.level)
    good = record.good
    # A configuration that breaks the SLO again and again spends the budget itself: to stay saves nothing.
    spent = kept and memory.budget_spent and record.configurations[state.configuration].good
    over = memory.search_over(state.level) and (kept or not good)
    # If a search has found nothing that keeps the SLO, only the best of those tried is worth a change.
    reachable = good or ([state.configuration] if kept else record.tried if over else [])
    # A broken SLO is repaired with what is known before anything new is tried.
    repair = not kept and bool(reachable)
    # The load has just moved and may go on moving: no search begins before it rests.
    first = kept and memory.first_window_of_load(state.level)
    if spent:
        why = f"{memory.budget_text()}, not exploring"
    elif first:
        why = "the first window under this load"
    else:
        why = "the search is over, this is the best known" if over else ""
    return Leeway(
        reachable=reachable,
        search=not (spent or repair or over or first),
        # A return to a configuration that keeps the SLO never waits for the limits per hour.
        used_up={} if good and not kept else memory.used_up(now, kept=kept),
        why=why,
    )


def _allowed(
    space: KnobSpace, memory: Memory, state: State, leeway: Leeway, running: Configuration
) -> np.ndarray:
    """What the agent may choose from, the configuration in force always among it.   # (n,) int64.

    Configurations known to be good may be reached at once; untried ones only in bounded steps, and only in a
    search.
    """
    allowed = np.array(leeway.reachable, dtype=np.int64)
    if leeway.search:
        allowed = np.union1d(allowed, space.region(state.configuration, memory.limits.step))
    allowed = np.setdiff1d(space.canonical[allowed], memory.banned(state.level))
    if leeway.used_up:
        here = space.decode(state.configuration)
        if not space.equal(running, here):
            here = running  # a change to the nearest values is one, too
        costs = [space.apply_cost(here, space.decode(int(c))) for c in allowed]
        allowed = allowed[[cost not in leeway.used_up for cost in costs]]
    return np.union1d(allowed, [state.configuration]).astype(np.int64)
