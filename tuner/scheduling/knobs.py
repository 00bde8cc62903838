"""The deferred scheduler's options as knobs, so that an agent can tune it like any server.

| knob | values | means |
|---|---|---|
| ``deferral`` | 0 .. 1 | how long a batch waits for more: 0 not at all (eager), 1 as long as it can |
| ``batch_cap`` | 0, 1, 2, 4 .. 64 | largest batch; 0: the session's own |
| ``target_batch`` | 0, 1 | whether requests are given up only until the batch has its target size |
| ``drop_rule`` | 0, 1, 2 | lazy, window, early: from the mildest to the strictest |
| ``dispatch_order`` | 0, 1, 2 | which batch goes first: the earliest sched_at, deadline, latest start |

All of them cost nothing to change: see :func:`tuner.scheduling.batching.symphony.reconfigure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role
from tuner.scheduling.batching.symphony import DropRule, Order, SymphonyOptions

__all__ = [
    "DROP_RULES",
    "KNOBS",
    "ORDERS",
    "check_space",
    "configuration_of",
    "options_from",
    "scheduler_space",
]

DROP_RULES: tuple[DropRule, ...] = get_args(DropRule)
"""The drop rules; the knob's value is the place here."""

ORDERS: tuple[Order, ...] = get_args(Order)
"""The dispatch orders, likewise."""

KNOBS = (
    Knob(
        name="deferral",
        grid=(0.0, 0.25, 0.5, 0.75, 1.0),
        default=1.0,
        apply_cost=ApplyCost.FREE,
        idle_when=("batch_cap", 1.0),  # a batch of one is complete when it begins
        idle_value=1.0,
    ),
    Knob(
        name="batch_cap",
        grid=(0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
        default=0.0,
        apply_cost=ApplyCost.FREE,
        role=Role.BATCH,
    ),
    Knob(
        name="target_batch",
        grid=(0.0, 1.0),
        default=1.0,
        apply_cost=ApplyCost.FREE,
        idle_when=("drop_rule", float(DROP_RULES.index("lazy"))),  # which looks at single requests
        idle_value=1.0,
    ),
    Knob(
        name="drop_rule",
        grid=tuple(float(rule) for rule in range(len(DROP_RULES))),
        default=float(DROP_RULES.index("window")),
        apply_cost=ApplyCost.FREE,
    ),
    Knob(
        name="dispatch_order",
        grid=tuple(float(order) for order in range(len(ORDERS))),
        default=float(ORDERS.index("sched_at")),
        apply_cost=ApplyCost.FREE,
    ),
)
"""The knobs of :func:`scheduler_space`."""


def scheduler_space() -> KnobSpace:
    """Return the space of all configurations of the scheduler."""
    return KnobSpace(KNOBS)


def options_from(configuration: Mapping[str, float], base: SymphonyOptions | None = None) -> SymphonyOptions:
    """Return the options that a configuration stands for.

    Args:
        configuration: A value for some or all of the knobs, not necessarily on their grids.
        base: The options that the other knobs, and what is no knob, are taken from; the defaults if None.

    Raises:
        InvalidInput: A knob is unknown, or a value has no meaning.
    """
    names = [knob.name for knob in KNOBS]
    if unknown := set(configuration) - set(names):
        raise InvalidInput(f"knob {min(unknown)}", "unknown", f"the knobs are {', '.join(names)}")
    options = base or SymphonyOptions()
    values = {**configuration_of(options), **configuration}
    for name, count in (("target_batch", 2), ("drop_rule", len(DROP_RULES)), ("dispatch_order", len(ORDERS))):
        if values[name] not in range(count):
            raise InvalidInput(f"knob {name}", f"{values[name]:g} is not in 0..{count - 1}")
    if not float(values["batch_cap"]).is_integer():
        raise InvalidInput("knob batch_cap", f"{values['batch_cap']:g} is no whole number")
    return replace(
        options,
        deferral=float(values["deferral"]),
        cap=int(values["batch_cap"]),
        target_batch=bool(values["target_batch"]),
        drop=DROP_RULES[int(values["drop_rule"])],
        order=ORDERS[int(values["dispatch_order"])],
    )


def check_space(space: KnobSpace) -> None:
    """Check that each value of each knob means something to the scheduler.

    Raises:
        InvalidInput: A knob is unknown, or a value has no meaning.
    """
    for knob in space.knobs:
        for value in knob.grid:
            options_from({knob.name: value})


def configuration_of(options: SymphonyOptions) -> Configuration:
    """Return the values of the knobs at some options; a batch cap need not be on the grid."""
    return Configuration(
        deferral=float(options.deferral),
        batch_cap=float(options.cap),
        target_batch=float(options.target_batch),
        drop_rule=float(DROP_RULES.index(options.drop)),
        dispatch_order=float(ORDERS.index(options.order)),
    )
