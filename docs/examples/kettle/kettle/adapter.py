"""The adapter: one model on one Kettle server, such as ``kettle://127.0.0.1:7301/tea``."""

from __future__ import annotations

import json
import time
from typing import Any

import grpc

from tuner.adapters import ApplyReport, Counters, Description, Endpoint, Grids, MonotonicTotals
from tuner.adapters.connection.address import grpc_address, parse_address
from tuner.adapters.connection.host import listening_processes
from tuner.adapters.live.knobs import KnobKind, check
from tuner.errors import InvalidInput, Refused, Unreachable
from tuner.knobs import ApplyCost, Configuration, KnobSpace, Role
from tuner.profile import BatchingProfile

__all__ = ["KINDS", "KettleBackend", "knobs"]

IN_PLACE = ApplyCost.IN_PLACE
KINDS = {
    "tile": KnobKind(least=-1, most=64, default=1.0, apply_cost=IN_PLACE),
    "workers": KnobKind(least=1, most=64, default=1.0, apply_cost=IN_PLACE, role=Role.PARALLELISM),
}
GRIDS = {"tile": (-1.0, 1.0, 2.0, 4.0, 8.0), "workers": (1.0, 2.0, 4.0, 8.0)}
NOTE = "a Kettle tells only mean latencies: for quantiles send requests with --rate"
PORT, FORM = 7301, "write kettle://HOST:7301/MODEL"


def knobs(grids: Grids) -> KnobSpace:
    """Return the knobs, with the user's grids in the place of ours."""
    if unknown := set(grids) - set(KINDS):
        raise InvalidInput(f"knob {min(unknown)}", "a Kettle has none", f"its knobs: {', '.join(KINDS)}")
    return KnobSpace(KINDS[name].knob(name, grid) for name, grid in {**GRIDS, **grids}.items())


class KettleBackend:
    """One model on one Kettle server. It is asked whenever something is to be known."""

    def __init__(self, target: str, grids: Grids) -> None:
        self._target = target
        self._at = parse_address(target, scheme="kettle", port=PORT, options={}, form=FORM)
        self._address = grpc_address(self._at.host, self._at.port)
        self.space = knobs(grids)
        self._channel = grpc.insecure_channel(self._address)
        self._totals = MonotonicTotals({"": self._counted(self._ask("Status"))})

    def describe(self) -> Description:
        processes = listening_processes(self._at.host, self._at.port)
        return Description(
            target=self._target, server="kettle", version="1", model=self._at.model,
            writable=True, quantiles=False, processes=processes, notes=(NOTE,),
        )  # fmt: skip

    def current(self) -> Configuration:
        return Configuration({name: float(value) for name, value in self._ask("Status")["settings"].items()})

    def apply(self, configuration: Configuration) -> ApplyReport:
        check(self.space, configuration, KINDS.__getitem__)
        before, begun = self.current(), time.monotonic()
        if configuration == before:
            return ApplyReport.unchanged(before)
        self._ask("Change", dict(configuration))
        cost, seconds = self.space.apply_cost(before, configuration), time.monotonic() - begun
        return ApplyReport(configuration=self.current(), changed=True, cost=cost, seconds=seconds, settle=0.1)

    def counters(self) -> Counters:
        status = self._ask("Status")
        self._totals.add({"": self._counted(status)})
        sums, restarts = self._totals.sums(), self._totals.restarts
        requests, latency = sums["answered", 0], sums["nanoseconds", 0] / 1e9
        now, pending = time.monotonic(), status["waiting"]
        return Counters(time=now, requests=requests, latency=latency, pending=pending, restarts=restarts)

    def profile(self) -> BatchingProfile | None:
        return None  # it makes no batches

    def endpoint(self) -> Endpoint:
        return Endpoint(wire="kettle.wire", address=self._address, model=self._at.model)

    def close(self) -> None:
        self._channel.close()

    def _counted(self, status: dict[str, Any]) -> dict[tuple[str, int], int]:
        return {(name, 0): status[name] for name in ("answered", "nanoseconds")}

    def _ask(self, method: str, body: object = None) -> Any:
        try:
            call = self._channel.unary_unary(f"/kettle.Kettle/{method}")
            return json.loads(call(json.dumps(body).encode(), timeout=5))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise Refused(error.details()) from error
            raise Unreachable(f"{self._address}: {error.details()}; is a Kettle running there?") from error
        except ValueError as error:  # gRPC's way to say that the channel is closed
            raise Unreachable(f"{self._address}: the connection was closed") from error
