"""Variants of the guard: without one of its rules, or with another value of one of its limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple

from tuner.control import GuardLimits, Hold
from tuner.control.decide.facts import Facts
from tuner.control.decide.limits import MOST
from tuner.control.decide.rules import BREAKER, RULES, Rule, unused_window
from tuner.experiments.guard.stage import DISTURBED, MIXED, UNSEEN

__all__ = ["FULL", "JUDGES", "NONE", "OFF", "SET_ASIDE", "Variant", "variants"]

SET_ASIDE = (DISTURBED, UNSEEN, MIXED)
"""Kinds of windows after which there is nothing to decide from. The table cannot do without its rule for
them, so that those of a kind are shown as sound instead."""
OFF: dict[str, float] = {
    "step": 1000.0,
    "budget": 1.0,
    "patience": MOST,
    "retry_after": 0,
    "reloads_per_hour": MOST,
    "restarts_per_hour": MOST,
    "breaker": MOST,
}
"""The value with which a limit limits nothing; a limit that is not here cannot be switched off."""
IN_TROUBLE = frozenset(("breaker",))
"""Limits that decide nothing while nothing goes wrong."""
ELSEWHERE = frozenset(("restarts_per_hour",))
"""Limits on changes that the simulated server does not have: all of its changes are reloads."""
FROM_NOTHING = (1.0, 3.0)
"""Values of a limit that limits nothing as it is."""


def stand_still(_: Facts) -> Hold:
    """Hold where no rule has an answer."""
    return Hold(reason="no rule has an answer")


def never(_: Facts) -> None:
    """Never answer."""


LAST, NO_BREAKER = Rule(stand_still, "there is an answer"), Rule(never, "")


class Variant(NamedTuple):
    """A guard that differs from the usual one."""

    name: str
    without: tuple[str, ...] = ()
    """The names of the rules that it does without, and the kinds of windows that it does not set aside."""
    limits: tuple[tuple[str, float], ...] = ()
    """Other values of limits."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The table."""
        return (*(rule for rule in RULES if rule.name not in self.without), LAST)

    @property
    def breaker(self) -> Rule:
        """What overrules the table."""
        return NO_BREAKER if BREAKER.name in self.without else BREAKER

    @property
    def trusted(self) -> frozenset[str]:
        """The kinds of windows that are taken as sound."""
        return frozenset(SET_ASIDE) & {*self.without}

    @property
    def in_trouble_only(self) -> bool:
        """Whether it can differ from the usual guard only where something goes wrong."""
        return any(name in IN_TROUBLE for name, _ in self.limits)


FULL = Variant("as it is")
JUDGES = (
    "mean breaks the slo",
    "failures on probation",
    "broken on probation",
    "gains too little",
    BREAKER.name,
)
"""Rules that judge what the agent does, or keep it from doing it."""
NONE = Variant("none", without=JUDGES, limits=tuple(OFF.items()))
"""No rule and no limit stands between the agent and the server."""


def variants(*, values: bool) -> list[Variant]:
    """Return the usual guard, and those without one of its rules, kinds of windows set aside, or limits.

    Args:
        values: Whether limits also have half and twice their value.
    """
    names = [rule.name for rule in (*RULES, BREAKER) if rule.answer is not unused_window]
    rules = [Variant(f"without {name}", without=(name,)) for name in names]
    rules += [Variant(f"without setting aside {kind}", without=(kind,)) for kind in SET_ASIDE]
    known = (limit for limit in fields(GuardLimits) if limit.name not in ELSEWHERE)
    limits = [one for limit in known for one in _of_limit(limit, values=values)]
    return [FULL, *rules, *limits]


def _of_limit(limit: Field[Any], *, values: bool) -> Iterator[Variant]:
    assert limit.default is not MISSING, limit.name
    usual, seen = limit.default, {limit.default}
    if (neutral := OFF.get(limit.name, usual)) not in seen:
        seen.add(neutral)
        yield Variant(f"{limit.name} switched off", limits=((limit.name, neutral),))
    if not values or isinstance(usual, bool):
        return
    for other in (0.5 * usual, 2.0 * usual) if usual else FROM_NOTHING:
        if (value := _bounded(limit, other)) not in seen:
            seen.add(value)
            yield Variant(f"{limit.name} {value:g}", limits=((limit.name, value),))


def _bounded(limit: Field[Any], value: float) -> float:
    """Return the nearest value that a limit may have."""
    low, high = float(limit.metadata.get("ge", 0.0)), float(limit.metadata.get("le", math.inf))
    bounded = min(max(value, low), high)
    return math.floor(bounded) if isinstance(limit.default, int) else bounded
