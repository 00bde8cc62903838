"""The network of a scenario: delays between scheduler, accelerators and clients, constant or drawn."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import PlainValidator

from tuner.cluster.scenario.delay import DelayDistribution, parse_delay
from tuner.files.schema import NotNegative, StrictPart
from tuner.scheduling.cluster import Delays

__all__ = ["Allowance", "Network", "NetworkDraws"]

ALLOWED = 0.99
"""Share of the draws below the delay that a policy assumes, unless the file gives an allowance."""


def _check_delay(value: Any) -> float | str:
    """Return a delay as it was written, after checking that it is one."""
    found = parse_delay(value)
    return found.first if found.constant else str(value).strip()


Delay = Annotated[float | str, PlainValidator(_check_delay)]


class NetworkDraws(NamedTuple):
    """Drawn delays of the network, one of each kind per batch; arrays of one where the delay is constant."""

    control: np.ndarray  # (n,) or (1,) s from the scheduler to the accelerator
    data: np.ndarray  # (n,) or (1,) s per request of the batch
    response: np.ndarray  # (n,) or (1,) s from the end of the execution to the clients


class Allowance(StrictPart):
    """The delays that the policy assumes, in place of those that the scenario chooses by itself."""

    control_ms: NotNegative | None = None
    data_ms_per_request: NotNegative | None = None
    response_ms: NotNegative | None = None


class Network(StrictPart):
    """The delays between scheduler, accelerators and clients.

    Each is a number, or a distribution that is drawn from for each batch: ``lognormal:MEDIAN,SIGMA``,
    ``uniform:LOW,HIGH`` or ``exponential:MEAN``.
    """

    control_ms: Delay = 0.0
    """From the scheduler's decision to the accelerator."""
    data_ms_per_request: Delay = 0.0
    """To send the input of one request of a batch there."""
    response_ms: Delay = 0.0
    """From the end of the execution to the client."""
    allowance: Allowance = Allowance()
    """What the policy assumes; by default the constants, and the 99 % quantile of a distribution."""

    @cached_property
    def delays(self) -> tuple[DelayDistribution, DelayDistribution, DelayDistribution]:
        """Control, data per request, and response."""
        control, data = parse_delay(self.control_ms), parse_delay(self.data_ms_per_request)
        return control, data, parse_delay(self.response_ms)

    @property
    def constant(self) -> bool:
        """Whether all delays are constant."""
        return all(delay.constant for delay in self.delays)

    def allowed(self) -> Delays:
        """Return the delays that the policy assumes, s."""
        given = (self.allowance.control_ms, self.allowance.data_ms_per_request, self.allowance.response_ms)
        control, data, response = (
            (delay.quantile(ALLOWED) if value is None else value) / 1e3
            for value, delay in zip(given, self.delays, strict=True)
        )
        return Delays(control=control, data=data, response=response)

    def draw(self, generator: np.random.Generator, count: int) -> NetworkDraws:
        """Return independent draws for ``count`` batches."""
        return NetworkDraws(*(delay.draw(generator, count) / 1e3 for delay in self.delays))
