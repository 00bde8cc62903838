"""The answers and orders of the JSON API, as its OpenAPI document describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tuner.control.store.store import configuration_of, knobs_of, shown, without_credentials
from tuner.measurement import QUANTITIES
from tuner.stored import with_fields

if TYPE_CHECKING:
    import sqlite3

    from tuner.control.daemon.worker import Worker
    from tuner.control.decide.cost_map import CostMap
    from tuner.control.decide.orders import Orders

__all__ = [
    "CostView",
    "CostsView",
    "DecisionView",
    "EventView",
    "ExplainedView",
    "Health",
    "KnobView",
    "PauseOrder",
    "PinOrder",
    "PlainOrder",
    "Problem",
    "SloView",
    "TargetView",
    "WindowView",
]

SHOWN = {
    quantity.name: (quantity.kind | None, Field(description=f"{quantity}."))
    for quantity in QUANTITIES
    if not quantity.statistic
} | {"latencies": (dict[str, float | None], Field(description="s, by statistic."))}
"""The quantities of a window, as fields of an answer."""


class SloView(BaseModel):
    """A bound on one latency statistic."""

    statistic: str
    latency: float = Field(description="s")


class KnobView(BaseModel):
    """One setting of a server."""

    name: str
    grid: list[float] = Field(description="Its values, in its own unit.")
    unit: str = Field(description="s for durations, empty for counts.")


class TargetView(BaseModel):
    """A target as it stands now."""

    name: str
    url: str = Field(description="Without credentials.")
    mode: str
    objective: str
    slo: SloView
    window: float = Field(description="Length of a window, s.")
    phase: str = Field(
        description="What its worker does: starting, running, stopped, or waiting and the reason."
    )
    windows: int = Field(description="Windows so far, over all lives of the daemon.")
    attainment: float | None = Field(
        description="Share of the last 100 usable windows of this life that kept the SLO."
    )
    running: dict[str, float] | None = Field(
        description="Its configuration; null until it was attached once."
    )
    last_good: dict[str, float] | None
    knobs: list[KnobView]
    paused: str = Field(description="Who paused it and why; empty if nobody has.")
    pinned: dict[str, float] | None
    rollback: dict[str, float] | None = Field(
        description="The configuration that it goes back to after this window."
    )


class CostView(BaseModel):
    """The cost of one configuration."""

    configuration: dict[str, float]
    cost: float = Field(description="Mean over its windows; inferred if it was never tried.")
    windows: int = Field(description="How many windows ran it; 0 if it was never tried.")


class CostsView(BaseModel):
    """The learned costs under the present load."""

    rate: float | None = Field(
        description="The load that they hold for, about, requests/s; null before anything was learned."
    )
    costs: list[CostView]


@with_fields(SHOWN)
class WindowView(BaseModel):
    """One window; null is not known."""

    id: int
    number: int
    time: float = Field(description="When it ended, s since 1970.")
    seconds: float
    configuration: dict[str, float]
    cost: float | None
    kept: bool = Field(description="Whether it kept the SLO.")
    disturbed: str = Field(description="Why nothing is learned from it; empty if something is.")


@with_fields(SHOWN)
class DecisionView(BaseModel):
    """A decision and its outcome, with the window before it; null is not known."""

    decision: int
    target: str
    time: float = Field(description="s since 1970.")
    action: str = Field(description="hold, apply or roll back.")
    outcome: str
    reason: str
    rule: str = Field(description="Which rule decided; empty where none did.")
    exploring: bool
    configuration: dict[str, float] | None
    previous: dict[str, float] | None
    expected: float | None = Field(description="Learned cost before the change.")
    observed: float | None = Field(description="Cost of the first usable window after the change.")
    seconds: float | None
    error: str
    window: int | None
    cost: float | None
    kept: bool | None
    disturbed: str


class ExplainedView(DecisionView):
    """A decision with its explanation."""

    explanation: dict[str, str]


class EventView(BaseModel):
    """Something unusual that happened."""

    model_config = ConfigDict(from_attributes=True)

    target: str = Field(description="Empty if it concerns the daemon as a whole.")
    time: float
    sentence: str


def _sayable(text: str) -> str:
    """Refuse a lone surrogate, which JSON can hold but no answer can (UnicodeEncodeError is a ValueError)."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_sayable)]


class PlainOrder(BaseModel):
    """An order without arguments: ``{}``."""

    model_config = ConfigDict(extra="forbid")


class PauseOrder(BaseModel):
    """An order not to change a server."""

    model_config = ConfigDict(extra="forbid")

    why: Text = Field(default="", max_length=200)


class PinOrder(BaseModel):
    """An order to keep one configuration."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    set: dict[Text, float] = Field(
        default_factory=dict, max_length=100, description="Values that differ from its configuration now."
    )


class Health(BaseModel):
    """Whether the daemon works."""

    ok: bool
    problems: list[str] = []


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


def target_view(
    worker: Worker, row: sqlite3.Row | None, orders: Orders, attainment: float | None
) -> TargetView:
    """Return a target as it stands now; ``row`` is its row in the store, None before it was attached."""
    config = worker.config
    knobs = knobs_of(row["knobs"]) if row is not None else []
    return TargetView(
        name=config.name,
        url=without_credentials(config.url),
        mode=config.mode,
        objective=config.objective,
        slo=SloView(statistic=config.slo.statistic, latency=config.slo.latency),
        window=config.window,
        phase=worker.phase,
        windows=row["number"] if row is not None else 0,
        attainment=attainment,
        running=dict(configuration_of(row["running"])) if row is not None else None,
        last_good=dict(configuration_of(row["last_good"])) if row is not None and row["last_good"] else None,
        knobs=[KnobView(**knob._asdict()) for knob in knobs],
        paused=orders.paused,
        pinned=dict(orders.pinned) if orders.pinned is not None else None,
        rollback=dict(orders.rollback) if orders.rollback is not None else None,
    )


def costs_view(learned: CostMap | None) -> CostsView:
    """Return the configurations whose cost is known."""
    if learned is None:
        return CostsView(rate=None, costs=[])
    known = [int(index) for index in learned.space.distinct if np.isfinite(learned.costs[index])]
    return CostsView(
        rate=learned.rate,
        costs=[
            CostView(
                configuration=dict(learned.space.decode(index)),
                cost=float(learned.costs[index]),
                windows=learned.windows.get(index, 0),
            )
            for index in known
        ],
    )


def window_view(row: sqlite3.Row) -> WindowView:
    """Return a window from its row in the store."""
    kept = {name: row[name] for name in ("id", "number", "time", "seconds", "cost", "kept", "disturbed")}
    configuration = configuration_of(row["configuration"])
    return WindowView(**kept, configuration=dict(configuration), **shown(row))
