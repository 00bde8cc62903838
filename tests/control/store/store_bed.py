"""What tests write into a store, and the clock that they set."""

from __future__ import annotations

from typing import Any

from tests.builders import OBJECTIVE, SPACE, configuration, measurement
from tuner.control import Decision
from tuner.control.decide.decision import Apply
from tuner.control.drive.journal import WindowRecord
from tuner.control.drive.state import RunState
from tuner.control.store.journal import StoreJournal
from tuner.control.store.store import Store
from tuner.knobs import Configuration
from tuner.measurement import Measurement

APPLY = Apply(configuration=configuration(4), reason="because", exploring=True, expected=0.5)


class Times:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def entered(store: Store, name: str = "a") -> int:
    """The number of a target."""
    return store.target(name, "sim://mlp", SPACE, configuration()).id


def record(
    decision: Decision, number: int = 1, m: Measurement | None = None, outcome: str = "held", **others: Any
) -> WindowRecord:
    m = m or measurement()
    return WindowRecord(
        number=number,
        measurement=m,
        decision=decision,
        cost=OBJECTIVE.cost(m),
        level=5,
        outcome=outcome,
        **others,
    )


def state(
    running: Configuration | None = None, good: Configuration | None = None, window: int = 1
) -> RunState:
    return RunState(
        target="sim://mlp",
        original=dict(configuration()),
        current=dict(running or configuration()),
        last_good=dict(good) if good else None,
        window=window,
    )


def journal(store: Store, target: int | None = None) -> StoreJournal:
    return StoreJournal(store, entered(store) if target is None else target, OBJECTIVE)


def plan_of_deletion(store: Store) -> str:
    """What SQLite does for each window that is deleted; it explains no foreign keys."""
    return str(store.rows("EXPLAIN QUERY PLAN SELECT * FROM decision WHERE window = 1")[0]["detail"])
