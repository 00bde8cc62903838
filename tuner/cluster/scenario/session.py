"""A session as users write it: a model with its execution profile, its SLO, and how its requests arrive."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.cluster.arrivals import ArrivalProcess
from tuner.errors import InvalidInput
from tuner.files.schema import NotNegative, Positive, StrictPart, file_beside
from tuner.planning.pools.catalogue import SHORTEST, check_line
from tuner.scheduling.cluster import QUANTILE, linear_latency
from tuner.workload.schedule import RateSchedule
from tuner.workload.sizes import SizeDistribution, parse_sizes

__all__ = [
    "FASTEST",
    "SLOWEST",
    "Arrival",
    "Count",
    "ExecutionProfile",
    "Profile",
    "Rate",
    "Session",
    "check_rate_fits",
]

FASTEST = 1e9
"""Requests/s above which a rate is taken for a mistake."""
SLOWEST = 1e-6
"""Requests/s below which a rate is taken for a mistake, too: less than one a week."""
LONGEST = 1e9
"""ms; more than a week, above which an SLO is taken for a mistake."""
ANY_RATE = 1.0
"""Requests/s of a session without a rate, where only the proportions between sessions matter."""
INTEGER = "integer_poisson"
"""Gaps are Poisson-distributed numbers of whole milliseconds, as in the code of the Kairos paper."""
ARRIVALS = ("poisson", "constant", INTEGER)
PROFILE_FIELDS = ("alpha_ms", "beta_ms", "profile_ms", "profiles", "model")
"""The forms of a session's profile; the first two make a line."""

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class ExecutionProfile(Protocol):
    """How long an accelerator executes a model: of a session itself, or of a type in the catalogue."""

    @property
    def known(self) -> int | None:
        """The largest size with a known time; None for no limit."""

    def largest_batch(self, slo: float) -> int:
        """Return the largest batch that is of use under an SLO, s."""

    def latency(self, sizes: np.ndarray) -> np.ndarray:
        """Return the execution times of these sizes, at least 1.   # (n,) s."""

    def unknown(self, smallest: int, largest: int) -> str:
        """Return what is wrong if sizes from the smallest to the largest come; empty if nothing is."""


def _check_rate(value: Any) -> float | tuple[tuple[float, float], ...]:
    """Return a rate, or the (second, rate) pairs of a schedule."""
    if _is_number(value):
        if not SLOWEST <= value <= FASTEST:
            raise ValueError(f"must lie between {SLOWEST:g} and {FASTEST:g} requests/s, but got {value}")
        return float(value)
    if not (isinstance(value, list | tuple) and value and all(_is_pair(pair) for pair in value)):
        raise ValueError(
            f"{value!r} is no rate; write 500, or [[0, 500], [10, 800]] for 800 from second 10 on"
        )
    steps = tuple((float(second), float(rate)) for second, rate in value)
    if steps[0][0] != 0 or any(later <= earlier for (earlier, _), (later, _) in pairwise(steps)):
        raise ValueError("the seconds of a schedule must begin at 0 and increase")
    if not all(rate == 0 or SLOWEST <= rate <= FASTEST for _, rate in steps) or steps[-1][1] == 0:
        raise ValueError(
            f"rates must be 0 or between {SLOWEST:g} and {FASTEST:g} requests/s, and the last not 0"
        )
    return steps


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(_is_number(part) for part in value)


def _check_arrival(text: str, info: ValidationInfo) -> str:
    """Return a form of arrival; that of a trace with the path of its file."""
    form, _, rest = text.strip().partition(":")
    if form == "trace" and rest:
        return f"trace:{file_beside(rest, info)}"
    if form == "gamma":
        _shape(text)
    elif text.strip() not in ARRIVALS:
        fix = f"write poisson, gamma:SHAPE, constant, {INTEGER} or trace:FILE"
        raise ValueError(f"{text!r} is not known; {fix}")
    return text.strip()


# Not a PlainValidator: pydantic writes what that returns twice, and warns of the list that a tuple becomes.
Rate = Annotated[float | tuple[tuple[float, float], ...], BeforeValidator(_check_rate)]
Arrival = Annotated[str, AfterValidator(_check_arrival)]


def check_rate_fits(rate: float | tuple[tuple[float, float], ...] | None, arrival: str) -> None:
    """Raise ValueError if a rate is a schedule, and the form of arrival allows none."""
    if isinstance(rate, tuple) and arrival.startswith("trace:"):
        raise ValueError("a trace has its own times; give a number as rate, to play it at, or none")
    if isinstance(rate, tuple) and arrival == INTEGER:
        raise ValueError(f"{INTEGER} needs a constant rate; give a number")


class Profile(StrictPart):
    """How long a batch executes: a line, or a table."""

    alpha_ms: NotNegative | None = None
    """Per item of the batch; a request without a size is one item."""
    beta_ms: NotNegative | None = None
    """Per batch."""
    profile_ms: tuple[Positive, ...] | None = None
    """Of a batch of 1, of 2, and so on."""

    @check_field("profile_ms")
    @classmethod
    def _grows(cls, table: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if table is not None and not table:
            raise ValueError("needs at least the latency of a batch of 1")
        if table and table[0] < SHORTEST:
            raise ValueError(f"must be at least {SHORTEST:g} ms, but a batch of 1 takes {table[0]:g} ms")
        for size, (less, more) in enumerate(pairwise(table or ()), 2):
            if more < less:
                raise ValueError(f"must not fall, but a batch of {size} takes {more:g} ms after {less:g} ms")
        return table

    @check_model(mode="after")
    def _has_one_form(self) -> Profile:
        line = (self.alpha_ms is not None) + (self.beta_ms is not None)
        others = [name for name in PROFILE_FIELDS[2:] if getattr(self, name, None) is not None]
        if (line > 0) + len(others) != 1 or line == 1:
            known = [name for name in PROFILE_FIELDS[2:] if name in type(self).model_fields]
            given = ", ".join(name for name in PROFILE_FIELDS if getattr(self, name, None) is not None)
            raise ValueError(
                f"give {', or '.join(['alpha_ms and beta_ms', *known])}; got {given or 'none of them'}"
            )
        if self.alpha_ms is not None and self.beta_ms is not None:
            check_line(self.alpha_ms, self.beta_ms)
        return self

    def first(self) -> float:
        """Return the latency of a batch of 1, s."""
        if self.profile_ms is not None:
            return self.profile_ms[0] / 1e3
        return ((self.alpha_ms or 0.0) + (self.beta_ms or 0.0)) / 1e3

    @property
    def known(self) -> int | None:
        """The largest size with a known time; None for a line."""
        return None if self.profile_ms is None else len(self.profile_ms)

    def largest_batch(self, slo: float) -> int:
        """Return the largest batch of the table, or the largest that is of use under an SLO, s."""
        if self.profile_ms is not None:
            return len(self.profile_ms)
        return linear_latency((self.alpha_ms or 0.0) / 1e3, (self.beta_ms or 0.0) / 1e3, slo).size - 1

    def latency(self, sizes: np.ndarray) -> np.ndarray:
        """Return the execution times of these sizes, at least 1.   # (n,) s."""
        if self.profile_ms is not None:
            return np.asarray((np.array(self.profile_ms) / 1e3)[sizes - 1])
        alpha, beta = (self.alpha_ms or 0.0) / 1e3, (self.beta_ms or 0.0) / 1e3
        return np.asarray(alpha * sizes + beta)

    def unknown(self, smallest: int, largest: int) -> str:
        """Return what is wrong if sizes from the smallest to the largest come; empty if nothing is."""
        if self.known is None or largest <= self.known:
            return ""
        return f"profile_ms holds 1 to {self.known} items, but requests have {smallest} to {largest}"


class Session(Profile):
    """A model with its SLO and its requests."""

    RENAMED: ClassVar = {"qos_ms": "slo_ms"}

    name: str = Field(min_length=1)
    profiles: dict[str, Profile] | None = None
    """Instead of one profile: one for each kind of accelerator."""
    model: str | None = Field(default=None, min_length=1)
    """Instead of a profile: the name of the model in the catalogue."""
    slo_ms: Annotated[Positive, Field(le=LONGEST)]
    """From the arrival to the client's answer."""
    quantile: Annotated[float, Field(strict=True, gt=0, lt=1)] = QUANTILE
    """Share of the requests that must be answered within ``slo_ms``."""
    rate: Rate | None = None
    """Requests/s of each copy, or steps of (second, requests/s). A trace is played at that mean rate."""
    arrival: Arrival = "poisson"
    """``poisson``, ``gamma:SHAPE``, ``constant``, ``integer_poisson`` or ``trace:FILE``."""
    sizes: str | None = None
    """Items of a request: ``paper``, ``lognormal:MU,SIGMA``, ``gaussian:MU,SIGMA``, ``trace:FILE``; or 1."""
    max_batch: Count | None = None
    memory_mib: NotNegative = 0.0
    """Memory that its model takes on an accelerator, MiB; only planners read it."""
    copies: Count = 1
    """Number of equal sessions, called NAME-0, NAME-1, and so on."""

    @check_field("profiles")
    @classmethod
    def _profiles_are_some(cls, profiles: dict[str, Profile] | None) -> dict[str, Profile] | None:
        if profiles is not None and not profiles:
            raise ValueError("needs a profile for each kind of accelerator")
        return profiles

    @check_field("slo_ms")
    @classmethod
    def _slo_can_be_met(cls, slo_ms: float, info: ValidationInfo) -> float:
        fields = {name: info.data.get(name) for name in PROFILE_FIELDS}
        if fields.pop("model") is not None:
            return slo_ms  # the catalogue knows how long it takes
        forms = list((fields.pop("profiles") or {}).values()) or [Profile.model_construct(**fields)]
        least = min(form.first() for form in forms) * 1e3
        if slo_ms < least:
            raise ValueError(f"must be at least {least:g} ms, what a batch of 1 takes, but got {slo_ms:g}")
        return slo_ms

    @check_field("sizes")
    @classmethod
    def _sizes_are_known(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is None:
            return None
        form, _, rest = text.strip().partition(":")
        if form == "trace":
            return f"trace:{file_beside(rest, info)}"
        try:
            return parse_sizes(text).name
        except InvalidInput as error:
            raise ValueError(str(error).removeprefix("sizes: ")) from None

    @check_model(mode="after")
    def _rate_fits_the_arrival(self) -> Session:
        check_rate_fits(self.rate, self.arrival)
        return self

    @property
    def slo(self) -> float:
        """The SLO, s."""
        return self.slo_ms / 1e3

    @property
    def needs_rate(self) -> bool:
        """Whether a rate is missing: only a trace has its own."""
        return self.rate is None and not self.traced

    @property
    def traced(self) -> bool:
        """Whether its requests come at the times of a file."""
        return self.arrival.startswith("trace:")

    def size_distribution(self) -> SizeDistribution | None:
        """Return how many items requests have; None if each is one item.

        Raises:
            TunerError: A trace of sizes cannot be read.
        """
        return None if self.sizes is None else parse_sizes(self.sizes)

    def process(self) -> ArrivalProcess:
        """Return how the requests arrive.

        Raises:
            InvalidInput: The trace cannot be read.
        """
        if self.traced:
            times, speed = self._trace()
            return ArrivalProcess(times=times / speed)
        steps = self.rate if isinstance(self.rate, tuple) else ((0.0, self.mean_rate(math.inf)),)
        schedule = RateSchedule(steps=steps)
        if self.arrival == INTEGER:
            return ArrivalProcess(schedule=schedule, whole_ms=True)
        shape = {"poisson": 1.0, "constant": math.inf}.get(self.arrival)
        return ArrivalProcess(schedule=schedule, shape=_shape(self.arrival) if shape is None else shape)

    def mean_rate(self, seconds: float) -> float:
        """Return the mean rate of one copy over the first ``seconds``, requests/s; 1 if none is given.

        That of a trace is over the part of that time in which it lasts.

        Raises:
            InvalidInput: The trace cannot be read.
        """
        if self.traced:
            times, speed = self._trace()
            return speed * _own_rate(times, seconds * speed)
        if self.rate is None:
            return ANY_RATE
        if isinstance(self.rate, float):
            return self.rate
        ends = [second for second, _ in self.rate[1:]] + [math.inf]
        parts = zip(self.rate, ends, strict=True)
        return sum(rate * max(min(end, seconds) - second, 0) for (second, rate), end in parts) / seconds

    def _trace(self) -> tuple[np.ndarray, float]:
        """Return the times of its trace, and how many times as fast they are played.   # (n,) s."""
        times = _read_trace(self.arrival.removeprefix("trace:"))
        return times, self.rate / _own_rate(times) if isinstance(self.rate, float) else 1.0

    def scaled(self, multiplier: float, *, speed: float = 1.0) -> Session:
        """Return the same session at a multiple of the rate.

        Args:
            multiplier: Of the rate. A trace is played that many times as fast.
            speed: How many times as fast the steps of a schedule come.
        """
        if isinstance(self.rate, tuple):
            steps = tuple((second / speed, rate * multiplier) for second, rate in self.rate)
            return self.model_copy(update={"rate": steps})
        return self.model_copy(update={"rate": self.mean_rate(math.inf) * multiplier})


def _shape(arrival: str) -> float:
    try:
        shape = float(arrival.partition(":")[2])
    except ValueError:
        shape = math.nan
    if not 0.01 <= shape <= 1000:
        raise ValueError(f"{arrival!r} needs a shape between 0.01 and 1000; write gamma:0.5")
    return shape


def _read_trace(path: str) -> np.ndarray:
    """Return the times of a trace file, from 0 on.   # (n,) s."""
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError:
        changed = 0  # reading it says what is wrong
    return _read_trace_once(path, changed)


@lru_cache(maxsize=8)
def _read_trace_once(path: str, changed: int) -> np.ndarray:  # noqa: ARG001 - a changed file is read again
    from tuner.workload.trace import Trace

    try:
        times = Trace(Path(path)).seconds
    except InvalidInput as error:
        problem = str(error).removeprefix(f"{error.setting}: ")
        raise InvalidInput(f"trace {path}", problem) from None
    if times[-1] <= 0:
        raise InvalidInput(f"trace {path}", "needs at least two different times")
    return times


def _own_rate(times: np.ndarray, seconds: float = math.inf) -> float:
    """Return the mean rate of a trace over its first seconds, requests/s.

    That of all of it is the gaps in it over the time they take.
    """
    if seconds < times[-1]:
        return int(np.searchsorted(times, seconds)) / seconds
    return (times.size - 1) / float(times[-1])
