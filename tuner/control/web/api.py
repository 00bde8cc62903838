"""The JSON API under ``/api``: shows targets, windows and decisions, and takes operators' orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Response, Security
from pydantic import BaseModel

from tuner.control.store import order_book
from tuner.control.store.history import (
    StoredDecision,
    StoredEvent,
    StoredWindow,
    events,
    explain,
    history,
    windows,
)
from tuner.control.store.known import current_target
from tuner.control.web.access import bearer
from tuner.control.web.views import (
    CostsView,
    ExplainedView,
    PauseOrder,
    PinOrder,
    PlainOrder,
    Problem,
    TargetView,
    TrafficView,
    costs_view,
    target_view,
    traffic_view,
)
from tuner.errors import InvalidInput

if TYPE_CHECKING:
    from tuner.control.daemon.daemon import Daemon
    from tuner.control.daemon.phase import AbsentTarget
    from tuner.control.daemon.worker import Worker
    from tuner.control.store.store import Store
    from tuner.control.web.access import Access
    from tuner.control.web.exporter import Exporter

__all__ = ["Api"]

Name = Annotated[str, Path(max_length=64, description="Name of the target, as in the daemon's file.")]
LARGEST_ANSWER = 4_000_000
"""Bytes of a list of entries."""
Count = Annotated[
    int,
    Query(
        ge=1,
        le=2000,
        description=f"Number of entries. The newest are returned, as many as {LARGEST_ANSWER} bytes hold.",
    ),
]
LARGEST = 2**53
APPLY = "write mode: apply for it in the daemon's file, and let the daemon read that again (SIGHUP)"
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is not JSON, or the Origin is malformed."},
    401: {"model": Problem, "description": "The token is missing or wrong."},
    403: {
        "model": Problem,
        "description": "Orders are refused: the daemon has no token, or the page is of another origin.",
    },
    404: {"model": Problem, "description": "There is no such target."},
    409: {"model": Problem, "description": "The state of the target does not allow the order."},
    413: {"model": Problem, "description": "The body is too long."},
    415: {"model": Problem, "description": "The body is not application/json."},
    503: {"model": Problem, "description": "The store cannot be used."},
}
ABSENT = {status: REFUSALS[status] for status in (404, 503)}


class Api:
    """Answers requests from the store and the daemon's workers.

    Args:
        daemon: The daemon whose targets are shown.
        store: Returns the web server's own connection to the store, so that readers do not delay workers.
        access: Decides who may give orders.
        exporter: Knows the share of windows that kept the SLO.
    """

    def __init__(
        self, daemon: Daemon, store: Callable[[], Store], access: Access, exporter: Exporter
    ) -> None:
        self._daemon = daemon
        self._store = store
        self._exporter = exporter
        self.router = APIRouter(prefix="/api")
        self._add("/targets", self.targets, list[TargetView])
        self._add("/targets/{name}", self.target, TargetView, responses=ABSENT)
        self._add("/targets/{name}/windows", self.windows, list[StoredWindow], responses=ABSENT)
        self._add("/targets/{name}/decisions", self.decisions, list[StoredDecision], responses=ABSENT)
        self._add("/targets/{name}/costs", self.costs, CostsView, responses=ABSENT)
        self._add("/targets/{name}/events", self.events, list[StoredEvent], responses=ABSENT)
        self._add("/targets/{name}/traffic", self.traffic, TrafficView | None, responses=ABSENT)
        self._add("/decisions/{number}", self.decision, ExplainedView, responses=ABSENT)
        orders = (self.pause, self.resume, self.pin, self.unpin, self.rollback)
        for order in orders:
            self._add(
                f"/targets/{{name}}/{order.__name__}",
                order,
                TargetView,
                methods=["POST"],
                responses=REFUSALS,
                route_class_override=access.route,
                dependencies=[Security(bearer)],  # for the OpenAPI document only
            )

    def _add(self, path: str, answer: Callable[..., Any], model: Any, **more: Any) -> None:
        more.setdefault("methods", ["GET"])
        self.router.add_api_route(path, answer, response_model=model, operation_id=answer.__name__, **more)

    def targets(self) -> list[TargetView]:
        """Return the present state of all targets."""
        return [self._view(target) for _, target in sorted(self._daemon.shown.items())]

    def target(self, name: Name) -> TargetView:
        """Return the present state of a target."""
        return self._view(self._known(name))

    def windows(self, name: Name, count: Count = 120) -> Response:
        """Return the newest windows of a target, oldest first."""
        self._known(name)
        return self._read(lambda store: windows(store, name, count))

    def decisions(
        self,
        name: Name,
        count: Count = 50,
        holds: Annotated[bool, Query(description="Include decisions that changed nothing.")] = False,
    ) -> Response:
        """Return the newest decisions of a target, oldest first."""
        self._known(name)
        return self._read(lambda store: history(store, target=name, count=count, holds=holds))

    def costs(self, name: Name) -> CostsView:
        """Return the learned costs of a target's configurations under its present load."""
        return costs_view(self._known(name).learned)

    def traffic(self, name: Name) -> TrafficView | None:
        """Return what a dispatcher did in the last window; null for any other target."""
        return traffic_view(self._known(name))

    def events(self, name: Name, count: Count = 50) -> Response:
        """Return the newest unusual events of a target, oldest first."""
        self._known(name)
        return self._read(lambda store: events(store, target=name, count=count))

    def decision(self, number: Annotated[int, Path(ge=1, le=LARGEST)]) -> ExplainedView:
        """Explain a decision: why it was made, what was expected of it and what came of it."""
        try:
            entry, lines = explain(self._store(), number)
        except InvalidInput as error:
            raise HTTPException(404, str(error)) from None
        return ExplainedView(**entry.model_dump(), explanation=dict(lines))

    def pause(self, name: Name, order: PauseOrder) -> TargetView:
        """Pause a target: nothing is changed until it is resumed, not even to repair."""
        return self._order(name, lambda store: order_book.pause(store, name, order.why))

    def resume(self, name: Name, order: PlainOrder) -> TargetView:  # noqa: ARG002  # FastAPI checks it
        """End a pause."""
        return self._order(name, lambda store: order_book.resume(store, name))

    def pin(self, name: Name, order: PinOrder) -> TargetView:
        """Pin a target to what it runs, or to another configuration, until it is unpinned."""
        return self._order(name, lambda store: order_book.pin(store, name, order.set), changes=True)

    def unpin(self, name: Name, order: PlainOrder) -> TargetView:  # noqa: ARG002  # FastAPI checks it
        """End a pin: the target is tuned again."""
        return self._order(name, lambda store: order_book.unpin(store, name))

    def rollback(self, name: Name, order: PlainOrder) -> TargetView:  # noqa: ARG002  # FastAPI checks it
        """Undo the change that led to the present configuration, once, after the present window."""
        return self._order(name, lambda store: order_book.roll_back(store, name), changes=True)

    def _order(self, name: str, give: Callable[[Store], object], *, changes: bool = False) -> TargetView:
        target = self._known(name)
        mode = target.config.mode
        if changes and mode != "apply":
            raise HTTPException(409, f"{name} is in mode {mode}, in which nothing is changed; {APPLY}")
        try:
            give(self._store())
        except InvalidInput as error:
            raise HTTPException(409, str(error)) from None
        return self._view(target)

    def _read(self, ask: Callable[[Store], Sequence[BaseModel]]) -> Response:
        """Ask the store about a target of the file; return nothing if it was never attached."""
        try:
            return _bounded(ask(self._store()))
        except InvalidInput:
            return _bounded([])

    def _known(self, name: str) -> Worker | AbsentTarget:
        """Return a target, or refuse the request."""
        target = self._daemon.shown.get(name)
        if target is None:
            raise HTTPException(404, f"there is no target '{name}'")
        return target

    def _view(self, target: Worker | AbsentTarget) -> TargetView:
        store, name = self._store(), target.config.name
        orders = order_book.orders_of(store, name)
        row, attainment = current_target(store, name), self._exporter.attainment(name)
        with store.parsing_rows():
            return target_view(target, row, orders, attainment)


def _bounded(entries: Sequence[BaseModel]) -> Response:
    """Return a list of entries as JSON: the newest, which come last, as many as fit into an answer."""
    parts: list[bytes] = []
    left = LARGEST_ANSWER
    for entry in reversed(entries):
        part = entry.model_dump_json().encode()
        left -= len(part) + 1
        if left < 1:
            break
        parts.append(part)
    return Response(b"[" + b",".join(reversed(parts)) + b"]", media_type="application/json")
