"""The forms of RRL by agent name: ours, and those with a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.agents.constants import changed
from tuner.agents.load_levels import LoadLevels
from tuner.agents.rrl.parameters import RRLParameters
from tuner.errors import InvalidInput

if TYPE_CHECKING:
    from tuner.agents.rrl.table.parameters import TableParameters

__all__ = ["form"]


def form(
    name: str, changes: Mapping[str, Any] | None = None, *, levels: LoadLevels | None = None
) -> RRLParameters | TableParameters:
    """Return the parameters of a form of RRL, with some of them changed.

    Args:
        name: ``rrl``, or one of :data:`~tuner.agents.rrl.table.presets.PRESETS`.
        changes: New values by field, see :func:`~tuner.agents.constants.changed`. ``perception`` (``smooth``
            or ``table``) is no field: it exchanges the form for the default one of that kind.
        levels: The grid of arrival rates; None is the default one.

    Raises:
        InvalidInput: A field is unknown or means nothing to this form, or its value is unusable; names it.
        KeyError: There is no such form.
    """
    wanted = dict(changes or {})
    parameters = _default("smooth") if name == "rrl" else _preset(name)
    perception = wanted.pop("perception", parameters.perception)
    if perception != parameters.perception:
        parameters = _default(perception)
    if levels is not None:
        parameters = dataclasses.replace(parameters, levels=levels)
    for field in wanted:
        _check_meaning(name, parameters, field)
    return changed(name, parameters, wanted)


def _default(perception: object) -> RRLParameters | TableParameters:
    if perception == "smooth":
        return RRLParameters()
    if perception != "table":
        raise InvalidInput("parameter perception", f"{perception!r} is unknown", "use smooth or table")
    from tuner.agents.rrl.table.parameters import TableParameters

    return TableParameters()


def _preset(name: str) -> TableParameters:
    from tuner.agents.rrl.table.presets import PRESETS

    return PRESETS[name]


def _check_meaning(name: str, parameters: RRLParameters | TableParameters, field: str) -> None:
    """Refuse a field that only the other kind of form has; what is unknown to both is refused elsewhere."""
    outer = field.partition(".")[0]
    if outer in _fields(type(parameters)):
        return
    from tuner.agents.rrl.table.parameters import TableParameters

    table = isinstance(parameters, TableParameters)
    if outer in _fields(RRLParameters if table else TableParameters):
        why = "it has a table" if table else "it smooths costs and has no table"
        others = "rrl" if table else "rrl_paper, rrl_code and q_learning"
        raise InvalidInput(
            f"parameter {field}", f"means nothing in {name}: {why}", f"it is a parameter of {others}"
        )


def _fields(parameters: type[RRLParameters | TableParameters]) -> set[str]:
    return {item.name for item in dataclasses.fields(parameters)}
