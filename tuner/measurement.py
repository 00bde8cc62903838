"""What one window of watching a backend showed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tuner.knobs import Configuration
from tuner.profile import BatchingProfile

__all__ = ["NOT_KNOWN", "Measurement"]

NOT_KNOWN = math.nan
"""Stands for a quantity that nobody measured; it is never 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One window: what load came, how it was served, and what it cost.

    Latencies are seconds per request, rates per second, CPU in cores. Quantities that could not be
    measured are NaN. A measurement with a reason in ``disturbed`` must not be learned from.
    """

    start: float
    """When the window began, s on the clock of whoever measured."""
    end: float
    """When it ended, s."""
    configuration: Configuration
    """What the server ran during the window."""
    requests: int
    """Requests answered."""
    failures: int = 0
    """Requests refused, failed or lost."""
    arrival_rate: float
    """The load, requests/s."""
    burstiness: float = NOT_KNOWN
    """Index of dispersion of arrival counts: 1 for Poisson, 0 for constant gaps, above 1 for bursts.

    Where no clients tell of each request it looks back on the last windows, too, and is unknown in the first.
    """
    latency_mean: float = NOT_KNOWN
    latency_p50: float = NOT_KNOWN
    latency_p95: float = NOT_KNOWN
    latency_p99: float = NOT_KNOWN
    quantiles_from: str = "none"
    """Who measured the quantiles: ``client``, ``server`` or ``none``."""
    quantiles_mixed: bool = False
    """Whether the server's quantiles still look back to another configuration; the mean never does."""
    queue_mean: float = NOT_KNOWN
    """Mean time a request waited inside the server, s."""
    compute_mean: float = NOT_KNOWN
    """Mean time a request spent in execution (input, inference, output), s."""
    batch_mean: float = NOT_KNOWN
    """Requests per execution."""
    batches: Mapping[int, int] = field(default_factory=dict)
    """Executions per batch size."""
    profile: BatchingProfile | None = None
    """l(b) fitted to this window alone."""
    cpu: float = NOT_KNOWN
    """Cores used by the server's processes."""
    foreign_cpu: float = NOT_KNOWN
    """Cores used by processes that are neither the server nor ours."""
    gpu: float = NOT_KNOWN
    """Share of the GPUs' time in use, 0..1."""
    gpu_memory: float = NOT_KNOWN
    """GPU memory in use, bytes."""
    lateness_p99: float = NOT_KNOWN
    """How late our own load generator sent (99 % quantile), s; large values blame the client."""
    change_seconds: float = 0.0
    """How long the change of the configuration before this window took, s; 0 without one."""
    change_requests: float = 0.0
    """Requests that came while it was made and may have waited for it."""
    disturbed: tuple[str, ...] = ()
    """Why the window must not be learned from; empty if it may."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.start

    def latency(self, statistic: str) -> float:
        """Return one statistic of the latency by name: ``mean``, ``p50``, ``p95`` or ``p99``."""
        return float(getattr(self, f"latency_{statistic}"))

    def to_json(self) -> dict[str, object]:
        """Return plain values for files; NaN becomes None."""
        values = asdict(self)
        values["configuration"] = dict(self.configuration)
        values["batches"] = {str(size): count for size, count in self.batches.items()}
        return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
