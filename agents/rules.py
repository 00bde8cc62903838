"""Rules that the constants of an agent keep: the first that is broken is told by name, with its value."""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_LAYERS", "MOST_UNITS", "check_rules", "is_network"]

MOST_LAYERS, MOST_UNITS = 8, 4096
"""Of a network; a larger one would learn for hours from a window."""


def check_rules(constants: object, **rules: tuple[bool, str]) -> None:
    """Check constants, one after the other.

    Args:
        constants: The object that has them.
        rules: By the name of a constant whether it is right, and what it must be.

    Raises:
        ValueError: One is not right.
    """
    for name, (right, must) in rules.items():
        if not right:
            raise ValueError(f"{name}: must be {must}, but got {shown(getattr(constants, name))}")


def is_network(hidden: tuple[int, ...]) -> tuple[bool, str]:
    """Return the rule for the hidden layers of a network: whether they keep it, and what it is."""
    right = 1 <= len(hidden) <= MOST_LAYERS and all(1 <= units <= MOST_UNITS for units in hidden)
    return right, f"1 to {MOST_LAYERS} layers of 1 to {MOST_UNITS} units"


def shown(value: Any) -> str:
    """Return a value as users write it: a tuple is a list to them."""
    text = str(list(value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
