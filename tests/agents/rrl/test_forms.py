"""The forms of RRL by name, and their constants as users change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuner.agents.rrl import RRLParameters
from tuner.agents.rrl.forms import form
from tuner.agents.rrl.table.parameters import TableParameters
from tuner.agents.rrl.table.presets import PAPER
from tuner.errors import InvalidInput


def test_presets_can_be_changed() -> None:
    """By field, and by field of the estimation function and the levels."""
    changed = form("rrl_paper", {"delta": 2, "estimator": {"steps": 7}, "levels": {"ratio": 1.5}})

    assert changed == replace(
        PAPER,
        delta=2.0,
        estimator=replace(PAPER.estimator, steps=7),
        levels=replace(PAPER.levels, ratio=1.5),
    )
    assert form("rrl") == RRLParameters()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"detla": 1}, "parameter detla: unknown; there are temperature, beta_first"),
        ({"estimator": {"layers": 1}}, r"parameter estimator\.layers: unknown; there are hidden"),
        ({"delta": "wide"}, "parameter delta"),
        ({"delta": -1}, "`delta >= 0`"),
    ],
)
def test_wrong_changes_are_named(changes: dict[str, Any], message: str) -> None:
    """One line for the command line."""
    with pytest.raises(InvalidInput, match=message):
        form("rrl_paper", changes)


def test_perception_exchanges_the_form() -> None:
    """`rrl` with a table has the defaults of the table form."""
    assert form("rrl", {"perception": "table", "delta": 2}) == TableParameters(delta=2.0)
    assert form("rrl_paper", {"perception": "smooth"}) == RRLParameters()
