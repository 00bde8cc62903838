"""What decides: an ordered table of rules, of which the first that has an answer wins.

A rule is a pure function ``Facts -> Decision | None``. :func:`decide` runs the table as it stands; the table
in the documentation is printed from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.control.decide.decision import Apply, Decision, Hold, Rollback
from tuner.control.decide.facts import Facts
from tuner.control.decide.proposal import Proposal
from tuner.knobs import Configuration

__all__ = ["BREAKER", "CHANGE", "ORDERED_BACK", "PAUSED", "RULES", "Rule", "decide", "table"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    answer: Callable[[Facts], Decision | None]
    promise: str
    """What it keeps for those who depend on the server."""

    @property
    def name(self) -> str:
        """What the rule is called where decisions are explained."""
        return self.answer.__name__.replace("_", " ")

    @property
    def sentence(self) -> str:
        """What it does."""
        return (self.answer.__doc__ or "").strip()


def operator_rolls_back(facts: Facts) -> Decision | None:
    """Go back to what the operator asked for."""
    wanted = facts.orders.rollback
    if wanted is None or facts.space.equal(wanted, facts.running):
        return None
    return Rollback(configuration=wanted, reason="the operator rolled back")


def operator_paused(facts: Facts) -> Decision | None:
    """Hold while the operator has paused the target."""
    return Hold(reason=f"paused: {facts.orders.paused}") if facts.orders.paused else None


def operator_pinned(facts: Facts) -> Decision | None:
    """Keep the configuration that the operator pinned."""
    wanted = facts.orders.pinned
    if wanted is None:
        return None
    if facts.space.equal(wanted, facts.running):  # the nearest value of a grid is not what was ordered
        return Hold(reason="pinned by the operator")
    return Apply(configuration=wanted, reason="pinned by the operator", restores=True)


def overdue_on_probation(facts: Facts) -> Decision | None:
    """Undo a change whose window is overdue: nobody would see whether it was bad."""
    if not facts.overdue or facts.retreat is None:
        return None
    return _back(facts, f"the window after the change is overdue: {facts.unused}", facts.retreat)


def mean_breaks_the_slo(facts: Facts) -> Decision | None:
    """Roll back at once if even the mean breaks the SLO while the quantiles still look back."""
    if not facts.mean_breaks or facts.best_good is None:
        return None
    return _back(facts, facts.mean_breaks, facts.best_good)


def unused_window(facts: Facts) -> Decision | None:
    """Hold after a window that says nothing about the configuration, or where there is none."""
    return Hold(reason=f"window not used: {facts.unused}") if facts.unused else None


def failures_on_probation(facts: Facts) -> Decision | None:
    """Roll back a change after which more requests failed than chance explains, or none was answered."""
    if not facts.failing or facts.retreat is None:
        return None
    return _back(facts, f"{facts.failing} after the change", facts.retreat)


def broken_on_probation(facts: Facts) -> Decision | None:
    """Roll back a change that broke the SLO, to the best configuration that keeps it."""
    if not facts.broken or facts.best_good is None:
        return None
    return _back(facts, f"the change broke the SLO ({facts.standing})", facts.best_good)


def nothing_better(facts: Facts) -> Decision | None:
    """Hold where the agent would stay."""
    proposal = facts.proposal
    return None if proposal.moves else Hold(reason=f"{facts.standing}; {proposal.stay}")


def gains_too_little(facts: Facts) -> Decision | None:
    """Hold unless a known configuration is better by more than chance explains."""
    proposal = facts.proposal
    if not proposal.known or proposal.urgent or proposal.clearly_better:
        return None
    return Hold(reason=f"{facts.standing}; no known configuration is better by more than chance explains")


def change(facts: Facts) -> Decision | None:
    """Change to what the agent proposes."""
    proposal = facts.proposal
    return Apply(
        configuration=facts.space.decode(proposal.choice),
        reason=f"{facts.standing}; {_why(proposal)}",
        exploring=proposal.exploring,
        expected=proposal.expected,
    )


ORDERED_BACK = Rule(operator_rolls_back, "the operator's word comes first")
"""The one that leads back although nothing need speak against the change."""
PAUSED = Rule(operator_paused, "the operator's word comes first")
"""The one by which a change on probation stays there although a usable window came."""
CHANGE = Rule(change, "the SLO at the least cost")
"""The one that tries what is new; all others hold, lead back or restore."""
RULES = (
    # A rollback comes before a pause: it is an order for this moment, and the pause goes on after it.
    ORDERED_BACK,
    PAUSED,
    Rule(operator_pinned, "the operator's word comes first"),
    Rule(overdue_on_probation, "no change stays that nobody can judge"),
    # The mean covers this window alone. If even the mean is above the bound on a high quantile, to wait for
    # the quantiles would only keep a bad change in force.
    Rule(mean_breaks_the_slo, "a bad change ends with the first window that shows it"),
    # Failures come before latency: what ran before is known to fail less, and they lead back to that. They
    # come before unused windows, too: where no request is answered there is nothing else to be learned.
    Rule(failures_on_probation, "a bad change ends with the first window that shows it"),
    Rule(unused_window, "no action on bad data"),
    Rule(broken_on_probation, "a bad change ends with the first window that shows it"),
    Rule(nothing_better, "no needless change"),
    Rule(gains_too_little, "no needless change"),
    CHANGE,
)
"""In the order in which they are asked."""


def circuit_breaker(facts: Facts) -> Decision | None:
    """Hold, whatever the other rules answer, for a while after changes that failed one after the other."""
    # What the operator asks for is tried at once.
    if not facts.breaker or operator_rolls_back(facts) is not None:
        return None
    return Hold(reason=facts.breaker)


BREAKER = Rule(circuit_breaker, "no hammering on a server that refuses")
"""Overrules every answer that would change the server."""


def decide(facts: Facts, rules: Sequence[Rule] = RULES, breaker: Rule = BREAKER) -> Decision:
    """Return the answer of the first rule that has one.

    Args:
        facts: What is known.
        rules: The table, in the order in which its rules are asked; the last always has an answer.
        breaker: Overrules every answer that would change the server.
    """
    rule, decision = next((r, answer) for r in rules if (answer := r.answer(facts)) is not None)
    if not isinstance(decision, Hold) and (held := breaker.answer(facts)) is not None:
        rule, decision = breaker, held
    return replace(decision, rule=rule.name)


def table() -> str:
    """Return the rules as the rows of a Markdown table, in their order."""
    rows = [f"| {rule.name} | {rule.sentence} | {rule.promise} |" for rule in (*RULES, BREAKER)]
    return "\n".join(["| rule | what it does | what it promises |", "|---|---|---|", *rows])


def _back(facts: Facts, why: str, target: Configuration) -> Rollback:
    return Rollback(configuration=target, reason=f"{why}; back to {facts.space.format(target)}")


def _why(proposal: Proposal) -> str:
    tried = "tried before" if proposal.known else "untried"
    if math.isnan(proposal.expected):
        return f"exploring a configuration ({tried}, nothing known)"
    basis = f"; {proposal.basis}" if proposal.basis else ""
    verb = "exploring" if proposal.exploring else "least learned cost"
    return f"{verb} (expected cost {proposal.expected:.2f}, {tried}{basis})"
