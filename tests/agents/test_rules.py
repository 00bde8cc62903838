"""Rules of constants: the first that is broken is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuner.agents.rules import check_rules, is_network


def test_the_first_broken_rule_is_told_with_the_value() -> None:
    """And not the other constants; a list as users write it, and not all of one that is long."""
    constants = SimpleNamespace(a=1, b=(2, 3), c=(0,) * 1000)

    with pytest.raises(ValueError, match=r"^b: must be one, but got \[2, 3\]$"):
        check_rules(constants, a=(True, "any"), b=(False, "one"), c=(False, "short"))
    with pytest.raises(ValueError, match=r"^c: must be short, but got \[0, 0, .{40,60}\.\.\.$"):
        check_rules(constants, c=(False, "short"))


@pytest.mark.parametrize(
    ("hidden", "right"),
    [((1,), True), ((4096,) * 8, True), ((), False), ((0,), False), ((4097,), False), ((1,) * 9, False)],
)
def test_a_network_has_bounds(hidden: tuple[int, ...], right: bool) -> None:
    """Layers, and units of each."""
    assert is_network(hidden)[0] is right
