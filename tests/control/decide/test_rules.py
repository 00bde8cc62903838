"""The table of rules: what runs is what the documentation shows, and every decision names its rule."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement, turn
from tuner.control import ControlLoop
from tuner.control.decide.event import Ordered
from tuner.control.decide.orders import Orders
from tuner.control.decide.rules import BREAKER, RULES, decide, table

PAGE = Path(__file__).parents[3] / "docs" / "design.md"


def test_the_documentation_shows_the_table_that_runs() -> None:
    """`table()` prints it; the page holds it word for word."""
    assert table() in PAGE.read_text(), table()


def test_every_rule_has_its_own_name_a_sentence_and_a_promise() -> None:
    """Whoever reads a decision finds the rule."""
    rules = (*RULES, BREAKER)

    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.sentence.endswith(".") and rule.promise for rule in rules)


def test_a_decision_names_the_rule_that_made_it() -> None:
    """The first rule with an answer wins."""
    loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent(configuration(2)))

    change = turn(loop, 10.0, measurement(0.020))
    loop.observe(Ordered(Orders(paused="by Ada")))
    held = turn(loop, 20.0, measurement(0.020, end=20.0))

    assert change.rule == "change"
    assert held.rule == "operator paused"


def test_a_loop_may_have_another_table() -> None:
    """An experiment leaves a rule out to see what it is worth."""
    fewer = [rule for rule in RULES if rule.name != "operator paused"]
    loop = ControlLoop(SPACE, OBJECTIVE, ScriptedAgent(configuration(2)), rules=partial(decide, rules=fewer))
    loop.observe(Ordered(Orders(paused="by Ada")))

    assert turn(loop, 10.0, measurement(0.020)).rule == "change"
