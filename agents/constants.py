"""Changes an agent's constants by name, as users write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tuner.errors import InvalidInput

__all__ = ["changed"]

C = TypeVar("C")


def changed(name: str, constants: C, changes: Mapping[str, Any]) -> C:
    """Return the constants of an agent with some changed; all are checked again.

    Args:
        name: What the agent is called, for messages.
        constants: A dataclass.
        changes: New values by field; text is converted to the field's type. Those of a field that is a
            dataclass are a mapping themselves, or are named with a dot: ``smoothing.adaptive``.

    Raises:
        InvalidInput: A field is unknown, or its value unusable or not finite; names it.
    """
    adapter: TypeAdapter[C] = TypeAdapter(type(constants))
    values = adapter.dump_python(constants, mode="json")
    _change(values, changes, "parameter ")
    try:
        new = adapter.validate_python(values)
    except ValidationError as error:
        from tuner.files.yaml_file import problem_of

        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != type(constants).__name__) or name
        problem = problem_of(first).replace("self.", "")  # of f"{self.delta=}"
        raise InvalidInput(f"parameter {place}", problem, f"those of {name} are {_listed(values)}") from None
    _check_finite(adapter.dump_python(new), "")
    return new


def _listed(values: Mapping[str, Any]) -> str:
    """Name the constants that users may set: not the load levels, which are not the agent's own."""
    return ", ".join(name for name in values if name != "levels")


def _check_finite(value: Any, place: str) -> None:
    """Check that no constant is infinite or not a number, in nested mappings too."""
    if isinstance(value, Mapping):
        for field, inner in value.items():
            _check_finite(inner, f"{place}.{field}" if place else field)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"parameter {place}", f"{value} is not finite", "give a number")


def _change(values: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Put new values in place of the old ones, in nested mappings too; ``values`` is modified in place."""
    for name, given in changes.items():
        field, dot, inner = name.partition(".")
        value = {inner: given} if dot else given
        if field not in values or (dot and not isinstance(values[field], dict)):
            raise InvalidInput(f"{where}{name}", "unknown", f"there are {_listed(values)}")
        if isinstance(value, Mapping) and isinstance(values[field], dict):
            _change(values[field], value, f"{where}{field}.")
        else:
            values[field] = value
