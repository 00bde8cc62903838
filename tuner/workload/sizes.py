"""How large requests are, in items: named distributions, observed ones, and a monitor of the last 10,000.

Every distribution is a table of probabilities over 1 to 1000 items. So the bounds of the throughput and the
draws of a workload need one formula each, and the same seed draws comparable requests from all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from tuner.errors import InvalidInput, StorageError

__all__ = [
    "LARGEST",
    "SizeDistribution",
    "SizeMonitor",
    "gaussian_sizes",
    "lognormal_sizes",
    "observed_sizes",
    "paper_sizes",
    "parse_sizes",
]

LARGEST = 1000
"""Items; the Kairos paper limits requests to this (section 5.1)."""
MONITORED = 10_000
"""Requests that the monitor remembers (Kairos, section 5.2)."""
NEGLIGIBLE = 1e-9
"""Probability below which a size never comes; otherwise the tail of a bell curve would decide the largest."""
FORMS = "write paper, lognormal:5.1,0.2, gaussian:300,100 or trace:FILE"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SizeDistribution:
    """Probabilities of sizes. Negligible ones are set to 0, and the rest adds up to 1."""

    name: str
    """As in the file: ``paper``, ``lognormal:5.1,0.2``."""
    probability: np.ndarray  # (LARGEST+1,); [0] is 0
    """By size, in items."""
    requests: float = math.inf
    """How many were observed for it; infinite if the probabilities are given."""

    def __post_init__(self) -> None:
        table = np.asarray(self.probability, dtype=float)
        if table.shape != (LARGEST + 1,) or table[0] != 0 or not (table >= 0).all() or table.sum() <= 0:
            raise ValueError(
                f"`probability` must hold {LARGEST + 1} non-negative numbers, the first 0, not all 0"
            )
        table = table / table.sum()
        table = np.where(table < NEGLIGIBLE, 0.0, table)
        table /= table.sum()
        table.flags.writeable = False
        object.__setattr__(self, "probability", table)

    @property
    def smallest(self) -> int:
        """The smallest size that comes."""
        return int(np.flatnonzero(self.probability)[0])

    @property
    def largest(self) -> int:
        """The largest size that comes."""
        return int(np.flatnonzero(self.probability)[-1])

    @property
    def mean(self) -> float:
        """Items per request."""
        return float(self.probability @ np.arange(LARGEST + 1))

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return the sizes of independent requests.   # (count,) items."""
        drawn = np.searchsorted(np.cumsum(self.probability), generator.random(count), side="right")
        return np.clip(drawn, self.smallest, self.largest)  # the sum may miss 1 by a rounding error


class SizeMonitor:
    """The sizes of the most recent requests, for a new plan.

    It begins empty, remembers every request that :meth:`observe` gets, and forgets the oldest beyond its
    capacity. :meth:`distribution` can be asked at any time.
    """

    def __init__(self, capacity: int = MONITORED) -> None:
        if capacity < 1:
            raise ValueError(f"`capacity >= 1` must hold, but got {capacity=}")
        self._ring = np.zeros(capacity, dtype=np.int64)  # (capacity,) items
        self._seen = 0

    def __len__(self) -> int:
        return min(self._seen, self._ring.size)

    def observe(self, sizes: int | np.ndarray) -> None:
        """Remember a request, or several in order of arrival."""
        new = np.atleast_1d(np.asarray(sizes, dtype=np.int64))
        if new.size and not 1 <= new.min() <= new.max() <= LARGEST:
            raise ValueError(f"sizes must lie in 1..{LARGEST}, but got {new.min()}..{new.max()}")
        last = new[-self._ring.size :]
        places = (self._seen + new.size - last.size + np.arange(last.size)) % self._ring.size
        self._ring[places] = last
        self._seen += new.size

    def distribution(self) -> SizeDistribution:
        """Return how often each size came; raises ValueError while there is none."""
        return observed_sizes(self._ring[: len(self)], name=f"last {len(self):,} requests")


def paper_sizes() -> SizeDistribution:
    """Return the mixture of the Kairos paper's published code, which follows a production trace.

    8 % of the requests have 1 to 99 items, 22 % 200 to 599, and 5 % 600 to 999, each equally likely. The rest
    is lognormal(5.1, 0.2) where that lies in 100 to 200, and 190 to 199 otherwise. All are rounded up to
    tens.
    """
    table = np.zeros(LARGEST + 1)
    table[1:100] += 0.08 / 99
    table[200:600] += 0.22 / 400
    table[600:1000] += 0.05 / 400
    bell = NormalDist(5.1, 0.2)
    below = np.array([bell.cdf(math.log(size)) for size in range(100, 201)])  # P(size <= 100..200)
    table[101:201] += 0.65 * np.diff(below)
    table[190:200] += 0.65 * (1 - (below[-1] - below[0])) / 10
    tens = np.zeros(LARGEST + 1)
    np.add.at(tens, -(-np.arange(LARGEST + 1) // 10) * 10, table)
    return SizeDistribution(name="paper", probability=tens)


def lognormal_sizes(mu: float, sigma: float) -> SizeDistribution:
    """Return lognormal sizes, rounded; what lies outside counts as 1 or 1000 items."""
    bell = NormalDist(mu, sigma)
    edges = [bell.cdf(math.log(size + 0.5)) for size in range(1, LARGEST)]
    return SizeDistribution(name=f"lognormal:{mu:g},{sigma:g}", probability=_between(edges))


def gaussian_sizes(mu: float, sigma: float) -> SizeDistribution:
    """Return Gaussian sizes, rounded; what lies outside counts as 1 or 1000 items."""
    bell = NormalDist(mu, sigma)
    edges = [bell.cdf(size + 0.5) for size in range(1, LARGEST)]
    return SizeDistribution(name=f"gaussian:{mu:g},{sigma:g}", probability=_between(edges))


def _between(edges: list[float]) -> np.ndarray:
    """Return probabilities of 1..LARGEST from the cumulative ones at the LARGEST-1 borders between them."""
    return np.concatenate(([0.0], np.diff([0.0, *edges, 1.0])))


def observed_sizes(sizes: np.ndarray, name: str = "observed") -> SizeDistribution:
    """Return how often each size was seen.

    Args:
        sizes: Items of requests.   # (n,), n >= 1
        name: What to call it.
    """
    if len(sizes) == 0:
        raise ValueError("no request was observed yet")
    counts = np.bincount(sizes, minlength=LARGEST + 1)
    return SizeDistribution(name=name, probability=counts.astype(float), requests=len(sizes))


def parse_sizes(text: str) -> SizeDistribution:
    """Read a distribution as users write it.

    Args:
        text: ``paper``, ``lognormal:MU,SIGMA`` (of the natural logarithm of the size), ``gaussian:MU,SIGMA``
            (items) or ``trace:FILE``, a text file with one size per line, ``#`` beginning a comment.

    Raises:
        InvalidInput: None of these, or a number out of range.
        StorageError: The file cannot be read.
    """
    form, _, rest = text.strip().partition(":")
    if form == "trace" and rest:
        return _read_trace(Path(rest))
    return _named_sizes(text)


@cache
def _named_sizes(text: str) -> SizeDistribution:
    form, _, rest = text.strip().partition(":")
    if form == "paper" and not rest:
        return paper_sizes()
    if form == "lognormal":
        return lognormal_sizes(*_numbers(text, rest, highest=math.log(LARGEST)))
    if form == "gaussian":
        return gaussian_sizes(*_numbers(text, rest, highest=LARGEST))
    raise InvalidInput("sizes", f"{text!r} is not known", FORMS)


def _numbers(text: str, rest: str, highest: float) -> tuple[float, float]:
    try:
        mu, sigma = (float(part) for part in rest.split(","))
    except ValueError:
        raise InvalidInput("sizes", f"{text!r} needs two numbers, MU,SIGMA", FORMS) from None
    if not (0 <= mu <= highest and 0 < sigma <= LARGEST):
        problem = f"{text!r} needs 0 <= MU <= {highest:.4g} and 0 < SIGMA <= {LARGEST}"
        raise InvalidInput("sizes", problem, FORMS)
    return mu, sigma


def _read_trace(path: Path) -> SizeDistribution:
    counts = np.zeros(LARGEST + 1)
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                entry = line.partition("#")[0].strip()
                if entry:
                    counts[_size(entry, f"{path} line {number}")] += 1
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InvalidInput(f"sizes {path}", "is not text", "write one size per line") from None
    if not counts.any():
        raise InvalidInput(f"sizes {path}", "holds no sizes", "write one size per line")
    return SizeDistribution(name=f"trace:{path.name}", probability=counts, requests=float(counts.sum()))


def _size(entry: str, place: str) -> int:
    size = int(entry) if entry.isdecimal() and len(entry) <= 6 else 0
    if not 1 <= size <= LARGEST:
        problem = f"{entry[:40]!r} is no number of items from 1 to {LARGEST}"
        raise InvalidInput(f"sizes {place}", problem, "write one size per line")
    return size
