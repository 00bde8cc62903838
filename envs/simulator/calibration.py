"""Fits a simulated server to measurements of a real one, which is what carries a policy to reality.

Each parameter is estimated from the quantity it shows in most directly:

=====================  ==========================================================================
table                  execution time per request against the batch sizes executed (least squares)
cpu per request/batch  CPU beyond the executions against requests and batches (least squares, >= 0)
overhead               client's mean latency minus mean queue and execution time (median)
contention             mean execution time in windows with several instances (search by simulation)
gap                    mean queueing time of single instances (search by simulation)
noise                  p95 of the latency (search by simulation)
=====================  ==========================================================================

Search by simulation: each window is simulated at its own rate and configuration, and the parameter is chosen
for which simulated and measured values agree best (mean absolute logarithm of their ratio). Overloaded
windows are left out, except for the table: their queue grows with their length, whatever the parameters.

A simulated request has one row. Requests of several rows count as one for each, and so do loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tuner.adapters.triton.configuration import DELAY
from tuner.envs.simulator.long_window import simulate
from tuner.envs.simulator.server import ServerModel
from tuner.errors import InvalidInput
from tuner.measurement import Measurement

__all__ = ["calibrate", "in_rows", "overhead", "steady"]

NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Batch sizes of the table."""
FEW = 20
"""Executions of similar sizes that a node of the table needs; sizes without follow the line."""
MOST_WINDOWS = 24
"""Windows used in a search; more are thinned out evenly."""
SECONDS = 15.0
"""Simulated seconds of each window in a search, at least ..."""
REQUESTS = 100.0
"""... and requests: without any, a simulated window shows nothing."""
MOST_REQUESTS = 20_000.0
"""Requests of each window in a search at most: a simulated world remembers no more than some 100,000."""
SOFTEN = 0.0005
"""Seconds added to both sides of a ratio, so that differences of microseconds do not count."""
STEPS = 9
"""Steps of one search by golden section, each of which narrows the interval to 0.62 of its length."""
ONE_SIZE = 0.05
"""Mean batch sizes that differ by less than this do not show a slope of l(b)."""
PRIOR_STRENGTH = 0.1
"""Weight of the line in the fit of a node, relative to the mean weight of a node's windows."""
LEAST_TIME = 0.1
"""Least l(b) of the table, as a share of the shortest time on the line."""
ROUNDS = 2
"""Rounds of the three searches; each search uses the results of the others."""

Statistic = Callable[[Measurement], float]


def calibrate(
    measurements: Sequence[Measurement], *, cores: float | None = None, base: ServerModel | None = None
) -> ServerModel:
    """Return a server model whose simulation behaves as the measurements show.

    Args:
        measurements: Windows of one server, best a sweep over the grid at one or two rates, with clients
            that time their requests. Disturbed ones are ignored.
        cores: Cores of the server's machine; None takes those of ``base``.
        base: Gives what no window shows: threads, apply costs, the client's CPU, and any parameter that the
            configurations measured do not bear on (contention without a window of two instances).

    Raises:
        InvalidInput: No undisturbed window executed anything.
    """
    shown = [m for m in measurements if not m.disturbed and m.requests and m.batches and m.compute_mean > 0]
    usable = [in_rows(m) for m in shown]
    if not usable:
        raise InvalidInput("calibration", "no undisturbed window in which requests were executed")
    kept_up = [m for m in usable if steady(m)]
    server = base or ServerModel()
    server = server.replace(
        cores=server.cores if cores is None else cores, overhead=overhead(kept_up, server.overhead)
    )
    server = _with_table(server, usable)
    # The front end's CPU slows executions down, so the table and all searches need the server's own.
    server = _with_table(_with_cpu(server, usable), usable)
    for _ in range(ROUNDS):
        crowded = [m for m in kept_up if _instances(m) > 1]
        alone = [m for m in kept_up if _instances(m) == 1]
        server = _search(server, "contention", 1.0, crowded, lambda m: m.compute_mean)
        server = _with_table(server, usable)
        server = _search(server, "gap", 0.002, alone, lambda m: m.queue_mean)
        server = _search(server, "noise", 1.0, kept_up, lambda m: m.latency_p95)
    return server


def in_rows(measurement: Measurement) -> Measurement:
    """Return a window as if each row had been a request of its own."""
    rows = measurement.rows
    if rows == 1.0:
        return measurement
    return replace(
        measurement,
        requests=round(measurement.requests * rows),
        arrival_rate=measurement.arrival_rate * rows,
        request_rows=1.0,
    )


def _instances(measurement: Measurement) -> int:
    return int(measurement.configuration.get("instances", 1.0))


def steady(measurement: Measurement, delay: str = DELAY) -> bool:
    """Whether the server kept up: requests waited at most for some executions and the delay.

    Args:
        measurement: The window.
        delay: Name of the knob that says how long a batch waits for more requests, if there is one.
    """
    allowed = 10.0 * measurement.compute_mean + measurement.configuration.get(delay, 0.0)
    return measurement.queue_mean < allowed and measurement.latency_mean < 2.0 * allowed


def _front(server: ServerModel, rate: float) -> float:
    """Return the cores that requests keep busy outside executions."""
    return rate * (server.cpu_per_request + server.client_cpu_per_request)


def _with_table(server: ServerModel, windows: Sequence[Measurement]) -> ServerModel:
    """Fit l(b) to windows with one instance, or to all if there are none.

    With several instances executions slow each other down. So does the front end's CPU, whose part is taken
    off first (by the server's ``contention``): l(b) is the time at full speed.
    """
    alone = [m for m in windows if _instances(m) == 1] or list(windows)
    executed = _executions(alone)  # (w, B+1)
    requests = executed * np.arange(executed.shape[1])
    shares = requests / requests.sum(axis=1, keepdims=True)
    slowed = np.array([1.0 + server.contention * _front(server, m.arrival_rate) for m in alone])
    compute = np.array([m.compute_mean for m in alone]) / slowed  # (w,) s
    weights = np.sqrt([m.requests for m in alone])
    alpha, beta = _line(shares, compute, weights)
    nodes = _nodes(executed.sum(axis=0))
    seconds = _seconds_at(nodes, shares, compute, weights, alpha * nodes + beta)
    table = dict(zip(nodes.tolist(), seconds.tolist(), strict=True))
    last = int(nodes[-1])
    table[2 * last] = table[last] + alpha * last  # beyond what was seen, the line's slope
    return server.replace(table=table, alpha=alpha, beta=beta)


def _executions(windows: Sequence[Measurement]) -> np.ndarray:
    """Return how many batches of each size each window executed.   # (w, B+1)."""
    executed = np.zeros((len(windows), max(max(m.batches) for m in windows) + 1))
    for row, window in zip(executed, windows, strict=True):
        row[list(window.batches)] = list(window.batches.values())
    return executed


def _nodes(executions: np.ndarray) -> np.ndarray:
    """Return the batch sizes at which l(b) is fitted: 1, and those that were executed about often enough.

    Args:
        executions: Of each batch size, in all windows.   # (B+1,)
    """
    largest = executions.size - 1
    nodes = [b for b in NODES if b == 1 or executions[b // 2 + 1 : b + 1].sum() >= FEW]
    if largest not in nodes and executions[nodes[-1] + 1 :].sum() >= FEW:
        nodes.append(largest)
    return np.array(nodes)


def _line(shares: np.ndarray, compute: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Fit alpha >= 0 and beta >= 0: a window's mean execution time is alpha * mean batch + beta.

    Args:
        shares: Of each window's requests, those that were executed in a batch of b.   # (w, B+1)
        compute: Mean execution time of each window's requests, s.   # (w,)
        weights: Of the windows' errors.   # (w,)
    """
    mean_batch = shares @ np.arange(shares.shape[1])
    if np.ptp(mean_batch) < ONE_SIZE:
        return 0.0, float(np.average(compute, weights=weights**2))
    design = np.stack([mean_batch, np.ones_like(mean_batch)], axis=1)
    alpha, beta = np.linalg.lstsq(design * weights[:, None], compute * weights, rcond=None)[0]
    if alpha < 0:
        return 0.0, float(np.average(compute, weights=weights**2))
    if beta < 0:
        return float(np.average(compute / mean_batch, weights=weights**2)), 0.0
    return float(alpha), float(beta)


def _seconds_at(
    nodes: np.ndarray, shares: np.ndarray, compute: np.ndarray, weights: np.ndarray, line: np.ndarray
) -> np.ndarray:
    """Fit l(b) at the nodes, linear in between, drawn weakly to the line for rare sizes.   # (nodes,) s.

    Args:
        nodes: Batch sizes.   # (nodes,)
        shares: As for :func:`_line`; so are the next two.
        compute: s.
        weights: Of the windows' errors.
        line: What :func:`_line` says of the nodes, s.   # (nodes,)
    """
    sizes = np.arange(shares.shape[1])
    hats = np.stack([np.interp(sizes, nodes, unit) for unit in np.eye(nodes.size)])  # (nodes, B+1)
    strength = PRIOR_STRENGTH * np.sqrt((weights**2).sum() / nodes.size)
    design = np.concatenate(((shares @ hats.T) * weights[:, None], strength * np.eye(nodes.size)))
    target = np.concatenate((compute * weights, strength * line))
    fitted = np.linalg.lstsq(design, target, rcond=None)[0]
    return np.maximum.accumulate(np.maximum(fitted, LEAST_TIME * line.min()))


def overhead(windows: Sequence[Measurement], otherwise: float) -> float:
    """Return the median over windows of what the client waited beyond queue and execution, s."""
    beyond = [m.latency_mean - m.queue_mean - m.compute_mean for m in windows if m.quantiles_from == "client"]
    known = [value for value in beyond if math.isfinite(value)]
    return max(float(np.median(known)), 0.0) if known else otherwise


def _with_cpu(server: ServerModel, windows: Sequence[Measurement]) -> ServerModel:
    """Share the CPU beyond executions between requests and batches; a negative share is pinned to 0."""
    known = [m for m in windows if math.isfinite(m.cpu)]
    known = [m for m in known if _instances(m) == 1] or known  # one alone waits for no core while it executes
    if not known:
        return server
    design, target = np.zeros((len(known), 2)), np.zeros(len(known))
    for i, window in enumerate(known):
        executions = sum(window.batches.values())
        # The window's own sum of n_b * l(b): the table's, scaled to the window's mean execution time.
        profile = server.profile_table(max(window.batches))
        busy = sum(count * profile[size] for size, count in window.batches.items())
        rows = sum(count * size * profile[size] for size, count in window.batches.items())
        scale = window.compute_mean * sum(size * count for size, count in window.batches.items()) / rows
        design[i] = window.requests, executions
        target[i] = window.cpu * window.seconds - server.threads * busy * scale
    per_request, per_batch = np.linalg.lstsq(design, target, rcond=None)[0]
    if per_request < 0 or per_batch < 0:
        column = 1 if per_request < 0 else 0
        only = max(float(design[:, column] @ target / (design[:, column] @ design[:, column])), 0.0)
        per_request, per_batch = (0.0, only) if column else (only, 0.0)
    return server.replace(cpu_per_request=float(per_request), cpu_per_batch=float(per_batch))


def _search(
    server: ServerModel, name: str, highest: float, windows: Sequence[Measurement], statistic: Statistic
) -> ServerModel:
    """Choose one parameter in 0..highest by golden section; unchanged if no window shows it."""
    shown = [m for m in windows if statistic(m) >= 0 and m.arrival_rate > 0]
    if not shown:
        return server
    shown = [shown[i] for i in np.unique(np.linspace(0, len(shown) - 1, MOST_WINDOWS).round().astype(int))]

    def misfit(value: float) -> float:
        changed = server.replace(**{name: value})
        simulated = [simulate(changed, m.configuration, m.arrival_rate, seconds=_length(m)) for m in shown]
        ratios = [
            (statistic(s) + SOFTEN) / (statistic(m) + SOFTEN) for s, m in zip(simulated, shown, strict=True)
        ]
        return float(np.mean(np.abs(np.log(ratios))))

    return server.replace(**{name: _golden_section(misfit, highest)})


def _length(measurement: Measurement) -> float:
    """Return the simulated seconds of a window in a search."""
    rate = measurement.arrival_rate
    return min(max(SECONDS, REQUESTS / rate), MOST_REQUESTS / rate)


def _golden_section(function: Callable[[float], float], highest: float) -> float:
    """Minimise over ``highest * x**2``, x in 0..1: finer near 0, where these parameters lie."""
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = 0.0, 1.0
    left, right = 1.0 - golden, golden
    at_left, at_right = function(highest * left**2), function(highest * right**2)
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(highest * left**2)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(highest * right**2)
    return highest * ((low + high) / 2.0) ** 2
