"""The scheduler's options as knobs."""

from __future__ import annotations

import math

import pytest

from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost
from tuner.scheduling.batching.symphony import SymphonyOptions
from tuner.scheduling.knobs import KNOBS, configuration_of, options_from, scheduler_space


def test_the_default_configuration_is_the_default_options() -> None:
    """The space begins where the authors' scheduler stands."""
    space = scheduler_space()

    assert options_from(space.default) == SymphonyOptions()
    assert configuration_of(SymphonyOptions()) == space.default


def test_every_configuration_stands_for_options_and_back() -> None:
    """SymphonyOptions and configurations translate into each other without loss."""
    space = scheduler_space()
    configurations = [space.decode(index) for index in range(space.size)]

    assert [configuration_of(options_from(each)) for each in configurations] == configurations


def test_drop_rules_are_ordered_from_mild_to_strict() -> None:
    """Neighbouring values of the knob are neighbouring rules."""

    assert [options_from({"drop_rule": rule}).drop for rule in (0, 1, 2)] == ["lazy", "window", "early"]


def test_what_is_no_knob_is_kept() -> None:
    """The test for schedulability and the other knobs come from the base."""
    base = SymphonyOptions(order="deadline", schedulable="beta_lambda", cap=3)

    options = options_from({"deferral": 0.5}, base)

    assert options == SymphonyOptions(order="deadline", schedulable="beta_lambda", cap=3, deferral=0.5)


def test_changing_a_knob_costs_nothing() -> None:
    """All of them take effect at once and disturb nobody."""
    space = scheduler_space()

    assert space.apply_cost(space.decode(0), space.decode(space.size - 1)) == ApplyCost.FREE
    assert {knob.apply_cost for knob in KNOBS} == {ApplyCost.FREE}


def test_configurations_equal_in_effect_are_one() -> None:
    """A batch of one is never deferred, and lazy drop knows no target."""
    space = scheduler_space()
    at_default = space.default.replace(batch_cap=1.0)
    lazy = space.default.replace(drop_rule=0.0)

    assert space.canonical[space.encode(at_default.replace(deferral=0.0))] == space.encode(at_default)
    assert space.canonical[space.encode(lazy.replace(target_batch=0.0))] == space.encode(lazy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dispatch_order": 3.0},
        {"drop_rule": 3.0},
        {"drop_rule": 0.5},
        {"target_batch": 2.0},
        {"target_batch": 0.5},
        {"timeout": 1.0},
        {"deferral": 2.0},
        {"batch_cap": 1.5},
        {"batch_cap": math.inf},
        {"batch_cap": math.nan},
    ],
)
def test_a_value_without_meaning_is_refused(wrong: dict[str, float]) -> None:
    """The knob is named."""

    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        options_from(wrong)
