"""Turns the readings at both ends of a window into a measurement. Pure: no clock, no server.

Clients and server may both measure a window. The latency is then the clients', because it contains the
network and the wait before sending; queueing, execution and batches are the server's. The load is what the
clients intended to send. If the server counts clearly more requests, others send too: its count is the
load, and shows how bursty that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tuner.adapters.backend import Counters
from tuner.adapters.metrics.gpu import gpu_figures
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, QUANTILES, UNANSWERED, Measurement, latencies
from tuner.profiler.contention import foreign_figures
from tuner.profiler.source import ClientSample, HostReading

__all__ = [
    "Arrivals",
    "Limits",
    "Reading",
    "arrivals",
    "assemble",
    "beyond_the_mean",
    "dispersion",
    "waiting_between",
]

OTHERS = 1.2
"""If the server counts more than this many times the clients' requests, others send too."""
FEWEST_BINS = 8
"""Fewest sub-intervals for a dispersion: its relative error is sqrt(2/(bins-1))."""
MOST_BINS = 100
CHANCE = 3.0
"""Standard deviations by which a number of requests may differ by chance."""
PER_BIN = 10
"""Fewest requests per sub-interval, on average."""

Arrivals = tuple[np.ndarray, np.ndarray]
"""Requests that came in each sub-interval of a window, and its length.   # (k,), (k,) s"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Everything that is read at one end of a window."""

    counters: Counters
    host: HostReading
    configuration: Configuration


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits beyond which a window counts as disturbed."""

    foreign: float = math.inf
    """Cores used by processes that are neither the server nor ours."""
    lateness: float = 0.020
    """How late our own generator may send (99 % quantile), s."""
    lateness_share: float = 0.1
    """How late it may send as a share of the latency (both 99 % quantiles), where that is more: the latencies
    of an overloaded server differ by more from window to window, so that it does not show."""


LIMITS = Limits()


def assemble(
    before: Reading,
    after: Reading,
    *,
    clients: ClientSample | None = None,
    sampled_at: float | None = None,
    came: Sequence[Arrivals] = (),
    mixed: bool = False,
    limits: Limits = LIMITS,
    within: Sequence[Counters] = (),
) -> Measurement:
    """Return the measurement of a window.

    Args:
        before: Read at its beginning.
        after: Read at its end.
        clients: The requests that our clients intended to send in it.
        sampled_at: When they were sampled, s. A request without an answer by then counts as if it had
            taken from the beginning of the window to that moment, which is the longest latency that the
            window can show, its ``cut_off``.
        came: Arrivals in this window and in those before it: without clients they show the burstiness.
        mixed: Whether the server's quantiles surely contain requests from before it, under other conditions.
        limits: Limits beyond which the window is disturbed.
        within: Readings inside the window; only their GPUs are used.
    """
    old, new = before.counters, after.counters
    if clients is not None and clients.intended.size == 0:
        clients = None
    longest = (sampled_at or new.time) - old.time
    latency, source = _latency(clients, old, new, longest)
    foreign = foreign_figures(before.host, after.host)
    lateness = float(np.quantile(clients.lateness, 0.99)) if clients is not None else NOT_KNOWN
    return new.since(old).measurement(
        start=old.time,
        end=new.time,
        configuration=after.configuration,
        failures=max(new.failures - old.failures, clients.failed if clients is not None else 0),
        beyond_servers=new.beyond_servers - old.beyond_servers,
        arrival_rate=_arrival_rate(old, new, clients),
        burstiness=_burstiness(old, new, clients, came),
        network_mean=_network(clients, old, new),
        timed=clients.intended.size if clients is not None and _others(old, new, clients) else math.inf,
        cut_off=longest if clients is not None and np.isnan(clients.latency).any() else NOT_KNOWN,
        quantiles_from=source,
        quantiles_mixed=mixed and source == "server",
        lateness_p99=lateness,
        disturbed=tuple(
            _disturbances(
                before,
                after,
                limits,
                foreign=foreign.get("foreign_cpu", NOT_KNOWN),
                lateness=lateness,
                latency=latency["latency_p99"],
            )
        ),
        **latency,
        **foreign,
        **_gpu(before, after, within),
    )


def arrivals(readings: Sequence[Counters]) -> Arrivals:
    """Return the requests that came between one reading and the next."""
    counts = [max(_arrived(old, new), 0.0) for old, new in pairwise(readings)]
    return np.array(counts), np.diff([reading.time for reading in readings])


def waiting_between(before: tuple[Counters, Counters], now: tuple[Counters, Counters]) -> tuple[float, float]:
    """Return how long requests waited because of what happened between two windows, such as a change.

    A request that was answered in between waited for the time that it took beyond the mean latency of the
    slower window: a change is not to blame for a slow configuration. A request that was not answered, if the
    load shows that there were some, waited half the time between the windows.

    Args:
        before: Read at both ends of the window before.
        now: Read at both ends of the window that has just ended.

    Returns:
        How long all these requests waited together, s, and how many requests came in between.
    """
    (start, left), (back, end) = before, now
    seconds = back.time - left.time
    answered = back.requests - left.requests
    slower = max((mean for mean in (_mean(*before), _mean(*now)) if not math.isnan(mean)), default=0.0)
    late = max(float(np.nan_to_num(back.latency - left.latency - answered * slower)), 0.0)
    rate = min(_arrived(start, left) / (left.time - start.time), _arrived(back, end) / (end.time - back.time))
    came = max(rate * seconds, 0.0)
    missing = max(came - answered - CHANCE * math.sqrt(came), 0.0)
    return late + missing * seconds / 2, max(came, answered)


def beyond_the_mean(m: Measurement) -> bool:
    """Return whether quantiles are higher than the mean allows: then they are of other requests, too.

    Of a window's requests a share of 1 - q, less what chance explains, takes the quantile q or longer
    (Markov). Where an overload has just ended, the quantiles of a server that looks back are still those of
    the overload, but the mean is not.
    """
    for name, share in QUANTILES.items():
        expected = max(m.requests, 0) * (1 - share)
        slow = expected - CHANCE * math.sqrt(expected)
        if slow * m.latency(name) > m.requests * m.latency_mean:
            return True
    return False


def dispersion(windows: Sequence[Arrivals]) -> float:
    """Return the index of dispersion of arrival counts: 1 for Poisson, more for bursts; NaN for too few.

    Each window is compared with its own mean, so that a load that differs between windows is not taken for a
    burst.
    """
    squares, freedom = 0.0, 0
    for counts, seconds in windows:
        if len(counts) > 1 and counts.sum() > 0:
            expected = counts.sum() / seconds.sum() * seconds
            squares += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(counts) - 1
    return squares / freedom if freedom >= FEWEST_BINS - 1 else NOT_KNOWN


def _latency(
    clients: ClientSample | None, old: Counters, new: Counters, longest: float
) -> tuple[dict[str, float], str]:
    """Return the mean and the quantiles of the latency, and who measured the quantiles."""
    shares = list(QUANTILES.values())
    if clients is not None:
        latency = np.where(np.isnan(clients.latency), longest, clients.latency)
        return latencies(latency.mean(), np.quantile(latency, shares)), "client"
    mean = _mean(old, new)
    if old.latencies is not None and new.latencies is not None:
        counted = new.latencies.since(old.latencies)
        return latencies(mean, map(counted.quantile, shares)), "server"
    known = [new.quantiles.get(share, NOT_KNOWN) for share in shares]
    return latencies(mean, known), "server" if new.quantiles else "none"


def _network(clients: ClientSample | None, old: Counters, new: Counters) -> float:
    """Return the mean latency of our clients less that of the server, s: at least 0.

    Both must speak of the same requests, those answered in the window: nobody else sends any, and none is
    left unanswered. Those sent in it are others while a queue grows, and took longer.
    """
    if clients is None or clients.answered is None or clients.answered.size == 0:
        return NOT_KNOWN
    if np.isnan(clients.latency).any() or _others(old, new, clients):
        return NOT_KNOWN
    outside = float(clients.answered.mean()) - _mean(old, new)
    return outside if math.isnan(outside) else max(outside, 0.0)


def _mean(old: Counters, new: Counters) -> float:
    """Return the mean latency between two readings, s."""
    requests = new.requests - old.requests
    return (new.latency - old.latency) / requests if requests > 0 else NOT_KNOWN


def _gpu(before: Reading, after: Reading, within: Sequence[Counters]) -> dict[str, float]:
    """Return the figures of the GPUs: by this machine's driver where it shows them, else by the server."""
    seconds, old, new = after.counters.time - before.counters.time, before.host.gpu, after.host.gpu
    if math.isnan(new.share) and math.isnan(new.memory):
        return gpu_figures([one.gpus for one in (before.counters, *within, after.counters)], seconds)
    same = new.devices == old.devices  # else the difference would be what a device used since it was started
    power = (new.energy - old.energy) / seconds if same and seconds > 0 else NOT_KNOWN
    return {"gpu": new.share, "gpu_memory": new.memory, "gpu_power": power}


def _arrival_rate(old: Counters, new: Counters, clients: ClientSample | None) -> float:
    """Return the rate at which requests came, 1/s: our clients', unless others send requests, too."""
    seconds = new.time - old.time
    served = _arrived(old, new)
    if clients is None:
        return max(served, 0.0) / seconds
    return (served if _others(old, new, clients) else clients.intended.size) / seconds


def _others(old: Counters, new: Counters, clients: ClientSample) -> bool:
    """Whether others send requests, too: the server counts clearly more than our clients sent.

    One that does not say how many wait counts those that it answered: of ours also a backlog from before.
    """
    served, ours = _arrived(old, new), clients.intended.size
    if clients.answered is not None and (old.pending is None or new.pending is None):
        ours = max(ours, clients.answered.size)
    return served > OTHERS * ours and served - ours > CHANCE * math.sqrt(ours)


def _arrived(old: Counters, new: Counters) -> float:
    """Return the requests that came between two readings: answered, failed, or still waiting."""
    waiting = 0.0 if old.pending is None or new.pending is None else new.pending - old.pending
    return new.requests - old.requests + new.failures - old.failures + waiting


def _burstiness(
    old: Counters, new: Counters, clients: ClientSample | None, came: Sequence[Arrivals]
) -> float:
    if clients is None or _others(old, new, clients):
        return dispersion(came)
    bins = min(clients.intended.size // PER_BIN, MOST_BINS)
    if bins < FEWEST_BINS:
        return NOT_KNOWN
    counts, edges = np.histogram(clients.intended, bins, range=(old.time, new.time))
    return dispersion([(counts.astype(float), np.diff(edges))])


def _disturbances(
    before: Reading, after: Reading, limits: Limits, *, foreign: float, lateness: float, latency: float
) -> Iterator[str]:
    if after.counters.requests == before.counters.requests:
        yield UNANSWERED
    if foreign > limits.foreign:
        yield f"foreign processes used {foreign:.2f} cores (limit {limits.foreign:g})"
    if after.counters.restarts != before.counters.restarts:
        yield "the model was reloaded or the server restarted during the window"
    if after.configuration != before.configuration:
        yield "somebody else changed the configuration during the window"
    tolerated = max(limits.lateness, limits.lateness_share * latency)
    if lateness > tolerated:
        yield f"our own load was sent {lateness * 1e3:.0f} ms late (limit {tolerated * 1e3:.0f} ms)"
