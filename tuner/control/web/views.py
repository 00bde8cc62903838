"""The answers and orders of the JSON API, as its OpenAPI document describes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from tuner.control.store.history import StoredDecision
from tuner.control.store.rows import configuration_of, knobs_of
from tuner.control.store.store import without_credentials

if TYPE_CHECKING:
    import sqlite3

    from tuner.control.daemon.phase import AbsentTarget
    from tuner.control.daemon.worker import Worker
    from tuner.control.decide.orders import Orders
    from tuner.control.drive.cost_map import CostMap
    from tuner.planning.pools.replan import PoolDecision

__all__ = [
    "CostView",
    "CostsView",
    "ExplainedView",
    "Health",
    "KnobView",
    "PauseOrder",
    "PinOrder",
    "PlainOrder",
    "Problem",
    "SloView",
    "TargetView",
    "TrafficView",
]


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
        description="What the daemon does with it: starting, running, stopped, or waiting and the reason."
    )
    since: float = Field(description="Since when, s since 1970; the reason may have changed meanwhile.")
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
    least: float | None = Field(description="The least load that counts as this one, requests/s.")
    most: float | None = Field(description="The greatest load that counts as this one, requests/s.")
    foreign_share: float | None = Field(
        description="About what share of the machine foreign processes take then."
    )
    costs: list[CostView]


class SessionView(BaseModel):
    """What came of the requests of a dispatcher's session in the last window."""

    name: str
    rate: float = Field(description="Requests/s that arrived.")
    in_time: float = Field(description="Requests/s that were answered by their deadlines.")
    late: float = Field(description="Requests/s that were answered later.")
    dropped: dict[str, float] = Field(description="Requests/s that were refused, by the reason.")
    mean_batch: float | None = Field(description="Mean items of the executed batches; null without any.")
    waiting: int = Field(description="Items that wait.")


class ServerView(BaseModel):
    """One of the backends behind a dispatcher."""

    address: str
    up: bool
    reason: str = Field(description="Why it is down; empty if it is up.")


class AdviceView(BaseModel):
    """Which instances should run behind a dispatcher; nothing of it is carried out."""

    session: str
    text: str = Field(description="The advice in words, as the history of events has it.")
    do: str = Field(description="keep or switch.")
    pool: dict[str, int] = Field(description="Instances by type that should run.")
    reason: str
    rate: float = Field(description="The load, requests/s.")
    gain: float | None = Field(
        description="Relative gain in requests/s; null where the running pool serves nothing in time."
    )
    steps: str = Field(description="What to start and to stop.")
    seconds: float = Field(description="Until the switch is done, s.")
    cost: float = Field(description="Price of the switch, $.")
    saving: float = Field(description="Difference in price after it, $/h; negative if it costs more.")


class TrafficView(BaseModel):
    """What a dispatcher did in the last window, session by session."""

    seconds: float = Field(description="Length of the window, s.")
    sessions: list[SessionView]
    servers: list[ServerView]
    advice: AdviceView | None = Field(description="On its pool, if the file has a `plan` for it.")


class ExplainedView(StoredDecision):
    """A decision with its explanation."""

    explanation: dict[str, str]


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

    set: dict[Text, Annotated[float, Strict()]] = Field(
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
    target: Worker | AbsentTarget, row: sqlite3.Row | None, orders: Orders, attainment: float | None
) -> TargetView:
    """Return a target as it stands now; ``row`` is its row in the store, None before it was attached."""
    config = target.config
    knobs = knobs_of(row["knobs"]) if row is not None else []
    return TargetView(
        name=config.name,
        url=without_credentials(config.url),
        mode=config.mode,
        objective=config.objective,
        slo=SloView(statistic=config.slo.statistic, latency=config.slo.latency),
        window=config.window,
        phase=target.phase,
        since=target.since,
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
        return CostsView(rate=None, least=None, most=None, foreign_share=None, costs=[])
    known = [int(index) for index in learned.space.distinct if np.isfinite(learned.costs[index])]
    least, most = learned.bounds
    return CostsView(
        rate=learned.rate,
        least=least,
        most=most,
        foreign_share=learned.foreign_share,
        costs=[
            CostView(
                configuration=dict(learned.space.decode(index)),
                cost=float(learned.costs[index]),
                windows=learned.windows.get(index, 0),
            )
            for index in known
        ],
    )


def traffic_view(target: Worker | AbsentTarget) -> TrafficView | None:
    """Return what a target's dispatcher did in the last window; None if it is none, or was not seen yet."""
    traffic, advisor = target.traffic, target.advisor
    if traffic is None:
        return None
    advice = advisor.latest if advisor is not None else None
    return TrafficView(
        seconds=traffic.seconds,
        sessions=[SessionView(**_fields(one, SessionView)) for one in traffic.sessions],
        servers=[ServerView(**_fields(one, ServerView)) for one in traffic.servers],
        advice=_advice(advisor.session, advice) if advisor is not None and advice is not None else None,
    )


def _fields(found: object, view: type[BaseModel]) -> dict[str, Any]:
    return {name: getattr(found, name) for name in view.model_fields}


def _advice(session: str, decision: PoolDecision) -> AdviceView:
    switch, gain = decision.switch, decision.gain
    return AdviceView(
        session=session,
        text=decision.sentence,
        do=decision.do,
        pool=decision.pool,
        reason=decision.reason,
        rate=decision.rate,
        gain=gain if math.isfinite(gain) else None,
        steps=switch.text,
        seconds=switch.seconds,
        cost=switch.cost,
        saving=switch.saving,
    )
