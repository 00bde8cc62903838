"""Opens a backend from its URL. Third parties add a scheme with the entry point group ``tuner.backends``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from tuner.adapters.backend import Backend
from tuner.errors import InvalidInput

__all__ = ["connect", "parameters", "schemes"]

GROUP = "tuner.backends"

Grids = Mapping[str, tuple[float, ...]]
"""Knob name -> grid values: overrides of the adapter's default grids, and further knobs."""
Factory = Callable[[str, Grids], Backend]


def schemes() -> list[str]:
    """Return the URL schemes that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def connect(target: str, grids: Grids | None = None) -> Backend:
    """Open a backend.

    Args:
        target: ``scheme://host:port/model?option=value``, such as ``triton://127.0.0.1:8001/mlp?metrics=8002``.
        grids: Grids that replace the adapter's own, by knob name.

    Raises:
        InvalidInput: The URL is malformed, the scheme unknown, or a grid unusable.
        AdapterError: The server cannot be reached.
    """
    scheme = urlsplit(target).scheme
    found = [entry for entry in entry_points(group=GROUP) if entry.name == scheme]
    if not found:
        known = ", ".join(f"{name}://" for name in schemes())
        raise InvalidInput(
            "TARGET", f"'{target}' has no known scheme", f"write one of {known}host:port/model"
        )
    factory = cast(Factory, found[0].load())
    return factory(target, grids or {})


def parameters(url: SplitResult, known: Mapping[str, str]) -> dict[str, str]:
    """Read the options after ``?`` of a target.

    Args:
        url: The split target.
        known: Option name -> default.

    Raises:
        InvalidInput: An option is unknown or given twice.
    """
    options = dict(known)
    for name, values in parse_qs(url.query, keep_blank_values=True).items():
        if name not in known or len(values) != 1:
            raise InvalidInput(
                "TARGET", f"option '{name}' is unknown or given twice", f"known: {', '.join(known)}"
            )
        options[name] = values[0]
    return options
