"""Variants of the guard, and how they are compared with it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tuner.control import GuardLimits
from tuner.control.decide.rules import BREAKER, RULES
from tuner.experiments.guard.life import live
from tuner.experiments.guard.paired import effect
from tuner.experiments.guard.variants import FULL, JUDGES, NONE, OFF, SET_ASIDE, variants


def test_every_rule_is_left_out_once() -> None:
    """That for windows that are set aside stays in the table; those of a kind are taken as sound."""
    without = {one.without[0]: one for one in variants(values=False) if one.without}

    assert {*without} == {rule.name for rule in (*RULES, BREAKER)} - {"unused window"} | {*SET_ASIDE}
    for name, one in without.items():
        assert name not in {rule.name for rule in one.rules} | {one.breaker.name}
        assert one.trusted == {name} & {*SET_ASIDE}
    assert [rule.name for rule in FULL.rules[:-1]] == [rule.name for rule in RULES]


def test_without_a_guard_no_rule_judges_what_the_agent_does() -> None:
    """What is left sets windows aside, obeys operators and applies what the agent proposes."""
    assert set(JUDGES) <= {rule.name for rule in (*RULES, BREAKER)}
    assert not set(JUDGES) & {rule.name for rule in (*NONE.rules, NONE.breaker)}
    assert dict(NONE.limits) == OFF


def test_limits_have_other_values_that_they_may_have() -> None:
    """Every limit that can be switched off exists; no value is the usual one."""
    usual = GuardLimits()

    assert set(OFF) <= {one.name for one in fields(GuardLimits)}
    for one in variants(values=True):
        for name, value in one.limits:
            assert value != getattr(usual, name)
            GuardLimits(**{name: value})  # type: ignore[arg-type]


def test_differences_within_pairs() -> None:
    """Equal lives show nothing; the same difference in all of many does, whatever the lives differ by."""
    usual = list(np.random.default_rng(1).normal(50.0, 20.0, 30))

    assert not effect(usual, usual).shows
    clear = effect(usual, [one + 2.0 + 0.01 * number for number, one in enumerate(usual)])
    assert clear.shows
    assert clear.low < 2.145 < clear.high
    assert clear.differing == 30
    assert not effect(usual, [one + (-1) ** n for n, one in enumerate(usual)]).shows


def test_five_differing_lives_show_nothing() -> None:
    """Their signs are alike by chance once in sixteen; those of six once in thirty-two."""
    usual = [0.0] * 44

    five = effect(usual, [1.0, 2.0, 3.0, 4.0, 5.0] + [0.0] * 39)
    assert five.chance == pytest.approx(2 / 2**5)
    assert five.low > 0
    assert not five.shows
    six = effect(usual, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] + [0.0] * 38)
    assert six.chance == pytest.approx(2 / 2**6)
    assert six.shows


def test_a_rule_that_never_answers_is_worth_nothing() -> None:
    """Nobody gives orders where nothing goes wrong; to change nothing is another life."""
    without = {one.without[0]: one for one in variants(values=False) if one.without}

    full = live("steady", 1, FULL, 20)

    assert live("steady", 1, without["operator paused"], 20) == full
    assert live("steady", 1, without["change"], 20).figures["changes"] == 0 < full.figures["changes"]
