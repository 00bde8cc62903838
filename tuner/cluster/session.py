"""A session as users write it: a model with its execution profile, its SLO, and how its requests arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.cluster.workload import ArrivalProcess
from tuner.errors import InvalidInput
from tuner.scheduling.cluster import linear_latency
from tuner.workload.load import RateSchedule

__all__ = [
    "FASTEST",
    "SLOWEST",
    "Count",
    "NotNegative",
    "Positive",
    "Profile",
    "Rate",
    "Session",
    "StrictPart",
]

FASTEST = 1e9
"""Requests/s above which a rate is taken for a mistake."""
SLOWEST = 1e-6
"""Requests/s below which it is, too: less than one a week."""

Positive = Annotated[float, Field(strict=True, gt=0)]
NotNegative = Annotated[float, Field(strict=True, ge=0)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class StrictPart(BaseModel):
    """A part of the file: knows its fields, refuses others, does not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, not checked; forgets what was worked out from the old."""
        copy = super().model_copy(update=update, deep=deep)
        for name in set(copy.__dict__) - set(type(self).model_fields):
            del copy.__dict__[name]
        return copy


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


Rate = Annotated[float | tuple[tuple[float, float], ...], PlainValidator(_check_rate)]


class Profile(StrictPart):
    """How long a batch executes: a line, or a table."""

    alpha_ms: NotNegative | None = None
    """Per request of the batch."""
    beta_ms: NotNegative | None = None
    """Per batch."""
    profile_ms: tuple[Positive, ...] | None = None
    """Of a batch of 1, of 2, and so on."""

    @check_field("profile_ms")
    @classmethod
    def _grows(cls, table: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if table is not None and not table:
            raise ValueError("needs at least the latency of a batch of 1")
        for size, (less, more) in enumerate(pairwise(table or ()), 2):
            if more < less:
                raise ValueError(f"must not fall, but a batch of {size} takes {more:g} ms after {less:g} ms")
        return table

    @check_model(mode="after")
    def _has_one_form(self) -> Profile:
        line = (self.alpha_ms is not None) + (self.beta_ms is not None)
        forms = (line > 0) + (self.profile_ms is not None) + (getattr(self, "profiles", None) is not None)
        if forms != 1 or line == 1:
            known = "alpha_ms and beta_ms, or profile_ms"
            known += ", or profiles" if "profiles" in type(self).model_fields else ""
            given = ", ".join(name for name in PROFILE_FIELDS if getattr(self, name, None) is not None)
            raise ValueError(f"give {known}; got {given or 'none of them'}")
        if line and self.first() <= 0:
            raise ValueError("alpha_ms and beta_ms must not both be 0")
        return self

    def first(self) -> float:
        """Return the latency of a batch of 1, s."""
        if self.profile_ms is not None:
            return self.profile_ms[0] / 1e3
        return ((self.alpha_ms or 0.0) + (self.beta_ms or 0.0)) / 1e3

    def sizes(self, slo: float) -> int:
        """Return the largest batch it knows, or that is of use within the SLO of that many s."""
        return len(self.profile_ms) if self.profile_ms is not None else self._line(slo).size - 1

    def latency(self, largest: int) -> np.ndarray:
        """Return the latency of batches up to a size.   # (largest+1,) s; [0] is 0."""
        if self.profile_ms is not None:
            return np.concatenate(([0.0], np.array(self.profile_ms[:largest]) / 1e3))
        alpha, beta = (self.alpha_ms or 0.0) / 1e3, (self.beta_ms or 0.0) / 1e3
        latency = alpha * np.arange(largest + 1) + beta
        latency[0] = 0.0
        return latency

    def _line(self, slo: float) -> np.ndarray:
        return linear_latency((self.alpha_ms or 0.0) / 1e3, (self.beta_ms or 0.0) / 1e3, slo)


class Session(Profile):
    """A model with its SLO and its requests."""

    name: str = Field(min_length=1)
    profiles: dict[str, Profile] | None = None
    """Instead of one profile: one for each kind of accelerator."""
    slo_ms: Positive
    """From the arrival to the client's answer."""
    rate: Rate | None = None
    """Requests/s, of each copy; or steps of (second, requests/s). Of a trace: play it at that mean rate."""
    arrival: str = "poisson"
    """``poisson``, ``gamma:SHAPE``, ``constant`` or ``trace:FILE``."""
    max_batch: Count | None = None
    copies: Count = 1
    """So many equal sessions, called NAME-0, NAME-1, and so on."""

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
        forms = list((fields.pop("profiles") or {}).values()) or [Profile.model_construct(**fields)]
        least = min(form.first() for form in forms) * 1e3
        if slo_ms < least:
            raise ValueError(f"must be at least {least:g} ms, what a batch of 1 takes, but got {slo_ms:g}")
        return slo_ms

    @check_field("arrival")
    @classmethod
    def _arrival_is_known(cls, text: str, info: ValidationInfo) -> str:
        form, _, rest = text.strip().partition(":")
        if form == "trace" and rest:
            folder = (info.context or {}).get("folder", Path())
            path = Path(folder) / rest
            if not path.is_file():
                raise ValueError(f"there is no file {path}")
            return f"trace:{path}"
        if form == "gamma":
            _shape(text)
        elif text.strip() not in {"poisson", "constant"}:
            raise ValueError(f"{text!r} is not known; write poisson, gamma:SHAPE, constant or trace:FILE")
        return text.strip()

    @check_model(mode="after")
    def _trace_has_no_schedule(self) -> Session:
        if self.arrival.startswith("trace:") and isinstance(self.rate, tuple):
            raise ValueError("a trace has its own times; give a number as rate, to play it at, or none")
        return self

    @property
    def slo(self) -> float:
        """The SLO, s."""
        return self.slo_ms / 1e3

    @property
    def needs_rate(self) -> bool:
        """Whether a rate is missing: only a trace has its own."""
        return self.rate is None and not self.arrival.startswith("trace:")

    def profile(self, kind: str) -> Profile:
        """Return the profile on a kind of accelerator."""
        return self.profiles[kind] if self.profiles is not None else self

    def table(self, kinds: tuple[str, ...]) -> np.ndarray:
        """Return the execution latency per kind and batch size.   # (K, B+1) s."""
        profiles = [self.profile(kind) for kind in kinds]
        tables = [form.sizes(self.slo) for form in profiles if form.profile_ms is not None]
        largest = max(form.sizes(self.slo) for form in profiles)
        largest = min([largest, *tables, self.max_batch or largest])
        return np.stack([form.latency(largest) for form in profiles])

    def process(self) -> ArrivalProcess:
        """Return how the requests arrive.

        Raises:
            InvalidInput: The trace cannot be read.
        """
        if self.arrival.startswith("trace:"):
            times = _read_trace(self.arrival.removeprefix("trace:"))
            speed = 1.0 if self.rate is None else self.mean_rate(math.inf) / _own_rate(times)
            return ArrivalProcess(times=times / speed)
        assert self.rate is not None, self.name
        steps = ((0.0, self.rate),) if isinstance(self.rate, float) else self.rate
        shape = {"poisson": 1.0, "constant": math.inf}.get(self.arrival)
        return ArrivalProcess(
            schedule=RateSchedule(steps=steps), shape=_shape(self.arrival) if shape is None else shape
        )

    def mean_rate(self, seconds: float) -> float:
        """Return the mean rate of one copy over the first ``seconds``, requests/s."""
        if isinstance(self.rate, float):
            return self.rate
        if self.rate is None:
            return _own_rate(_read_trace(self.arrival.removeprefix("trace:")))
        ends = [second for second, _ in self.rate[1:]] + [math.inf]
        parts = zip(self.rate, ends, strict=True)
        return sum(rate * max(min(end, seconds) - second, 0) for (second, rate), end in parts) / seconds

    def scaled(self, multiplier: float) -> Session:
        """Return the same at a multiple of the rate."""
        if isinstance(self.rate, tuple):
            steps = tuple((second, rate * multiplier) for second, rate in self.rate)
            return self.model_copy(update={"rate": steps})
        return self.model_copy(update={"rate": self.mean_rate(math.inf) * multiplier})


PROFILE_FIELDS = ("alpha_ms", "beta_ms", "profile_ms", "profiles")


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


def _own_rate(times: np.ndarray) -> float:
    """The mean rate of a trace: the gaps in it over the time they take, requests/s."""
    return (times.size - 1) / float(times[-1])
