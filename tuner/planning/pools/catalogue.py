"""The catalogue: the instance types that can be rented, with price, number, and execution profiles.

An execution profile is a line (``alpha_ms`` per item and ``beta_ms`` per execution) or a table from items
to milliseconds. A line may have the batching knobs of a server, which splits large requests into parts.
Between the sizes of a table the time is interpolated; outside them it is unknown, and whatever needs it is
refused. Two errors of measurement are repaired, and a note says so: times that are not positive are left out,
as if those sizes had not been measured; a table that falls somewhere is made monotone by the cumulative
maximum, which never promises a shorter time than was measured. A ``SoundTable``, of plans without such notes,
is refused instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, ConfigDict, Discriminator, Field, RootModel, Tag
from pydantic import model_validator as check_model

from tuner.errors import InvalidInput
from tuner.files.schema import NamedOnce, NotNegative, Positive, Some, StrictPart
from tuner.workload.sizes import SizeDistribution

__all__ = [
    "SHORTEST",
    "CatalogueFile",
    "InstanceType",
    "Line",
    "Offers",
    "SoundTable",
    "Table",
    "TypeProfile",
    "check_line",
    "make_offers",
]

LARGEST_BATCH = 1024
"""Items; larger batches are never formed from a line."""
SHORTEST = 1e-6
"""ms; no batch is executed within a nanosecond, and a plan would divide by shorter times."""

Count = Annotated[int, Field(strict=True, ge=1, le=10_000)]
Items = Annotated[int, Field(ge=1, le=1_000_000)]


def check_line(alpha_ms: float, beta_ms: float) -> None:
    """Raise ValueError if batches along a line would take no time, or less than `SHORTEST`."""
    if alpha_ms == beta_ms == 0:
        raise ValueError("alpha_ms and beta_ms must not both be 0")
    if alpha_ms + beta_ms < SHORTEST:
        raise ValueError(f"alpha_ms and beta_ms must be at least {SHORTEST:g} ms together")


class Line(StrictPart):
    """n items take ``alpha_ms * n + beta_ms``, if they execute as one batch.

    A server that executes at most ``max_batch`` items at once gets more of them in parts: full ones, and the
    rest. ``parallel`` parts execute at the same time.

    >>> Line(alpha_ms=1, beta_ms=5, max_batch=8, parallel=2).latency(np.array([4, 20])).tolist()
    [0.009, 0.022]
    """

    alpha_ms: NotNegative
    """Per item."""
    beta_ms: NotNegative
    """Per execution."""
    max_batch: Count | None = None
    """Most items of one execution; None for no limit."""
    parallel: Count = 1
    """Executions at the same time, each as fast as the line says."""

    @check_model(mode="after")
    def _takes_time(self) -> Line:
        check_line(self.alpha_ms, self.beta_ms)
        return self

    @property
    def known(self) -> int | None:
        """The largest size with a known time; None, as a line knows all."""
        return None

    def largest_batch(self, slo: float) -> int:
        """Return the largest batch that ends within an SLO, s, and within ``max_batch``; at least 1."""
        sizes = np.arange(1, min(self.max_batch or LARGEST_BATCH, LARGEST_BATCH) + 1)
        return max(int(np.count_nonzero(self.latency(sizes) <= slo)), 1)

    def latency(self, sizes: np.ndarray) -> np.ndarray:
        """Return the execution times of these sizes, never falling.   # (n,) s."""
        if self.max_batch is None:
            return np.asarray((self.alpha_ms * sizes + self.beta_ms) / 1e3)
        full, rest = np.divmod(sizes, self.max_batch)
        parts = full + (rest > 0)
        rounds = np.maximum(-(-parts // self.parallel), 1)
        # In the last round there is a full part, unless the rest is all that is left for it.
        alone = (rest > 0) & ((rounds - 1) * self.parallel == full)
        last = np.where(alone, rest, np.minimum(sizes, self.max_batch))
        times = (rounds - 1) * (self.alpha_ms * self.max_batch + self.beta_ms)
        return np.asarray((times + self.alpha_ms * last + self.beta_ms) / 1e3)

    def unknown(self, smallest: int, largest: int) -> str:  # noqa: ARG002 - a line knows every size
        """Return what is wrong if sizes from the smallest to the largest come; empty if nothing is."""
        return ""

    def raised(self) -> tuple[int, ...]:
        """Return the sizes whose time had to be raised; a line has none."""
        return ()

    def left_out(self) -> tuple[int, ...]:
        """Return the sizes whose time cannot be right; a line has none."""
        return ()


class Table(RootModel[Annotated[dict[Items, Annotated[float, Field(strict=True)]], Some]]):
    """Measured times: milliseconds by size; times that are not positive count as not measured."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    @check_model(mode="after")
    def _holds_a_time(self) -> Table:
        if not self._sizes():
            raise ValueError("needs a time above 0 ms")
        for size, time in self.root.items():
            if 0 < time < SHORTEST:
                raise ValueError(f"must be at least {SHORTEST:g} ms, but a batch of {size} takes {time:g} ms")
        return self

    def _sizes(self) -> list[int]:
        return sorted(size for size, time in self.root.items() if time > 0)

    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.array(self._sizes())  # (k,) items
        return sizes, np.array([self.root[size] for size in sizes.tolist()])  # (k,) ms

    @property
    def known(self) -> int:
        """The largest size with a known time."""
        return self._sizes()[-1]

    def largest_batch(self, slo: float) -> int:  # noqa: ARG002 - batches are as large as the table, as in a session's
        """Return the largest size of the table."""
        return self.known

    def latency(self, sizes: np.ndarray) -> np.ndarray:
        """Return the execution times of these sizes.   # (n,) s."""
        known, times = self._columns()
        return np.asarray(np.interp(sizes, known, np.maximum.accumulate(times)) / 1e3)

    def unknown(self, smallest: int, largest: int) -> str:
        """Return what is wrong if sizes from the smallest to the largest come; empty if nothing is."""
        first, last = self._sizes()[0], self._sizes()[-1]
        if first <= smallest and largest <= last:
            return ""
        only = " with times above 0" if self.left_out() else ""
        return f"holds {first} to {last} items{only}, but requests have {smallest} to {largest}"

    def raised(self) -> tuple[int, ...]:
        """Return the sizes whose time had to be raised, because a smaller one took longer."""
        sizes, times = self._columns()
        return tuple(int(size) for size in sizes[np.maximum.accumulate(times) > times])

    def left_out(self) -> tuple[int, ...]:
        """Return the sizes whose time is not positive."""
        return tuple(sorted(size for size, time in self.root.items() if time <= 0))


def _needs_no_repair(table: Table) -> Table:
    """Return the table; raises ValueError if a time is not positive, or that of a smaller size is longer."""
    for size, time in table.root.items():
        if time <= 0:
            raise ValueError(f"must be above 0 ms, but a batch of {size} takes {time:g} ms")
    for (_, less), (size, more) in pairwise(sorted(table.root.items())):
        if more < less:
            raise ValueError(f"must not fall, but a batch of {size} takes {more:g} ms after {less:g} ms")
    return table


SoundTable = Annotated[Table, AfterValidator(_needs_no_repair)]
"""A table of which no time was repaired."""


def _form(value: Any) -> str:
    fields = {"alpha_ms", "beta_ms", "max_batch", "parallel"}
    line = isinstance(value, Line) or (isinstance(value, dict) and not fields.isdisjoint(value))
    return "line" if line else "table"


TypeProfile = Annotated[Annotated[Line, Tag("line")] | Annotated[Table, Tag("table")], Discriminator(_form)]
"""How long an instance type executes a model: a line or a table."""


class InstanceType(StrictPart):
    """A type of instance, as the catalogue offers it."""

    name: str = Field(min_length=1)
    price: Positive
    """$/h of one."""
    max_count: Count
    """Most instances that can be rented."""
    profile: Annotated[dict[str, TypeProfile], Some]
    """By model; the type does not run a model that is missing."""


class CatalogueFile(StrictPart):
    """A catalogue in a file of its own, or inside a scenario."""

    catalogue: Annotated[tuple[InstanceType, ...], Some, NamedOnce]


class Offers(NamedTuple):
    """What the catalogue offers for one model: the types that run it, in the catalogue's order."""

    names: tuple[str, ...]
    price: np.ndarray  # (T,) $/h
    max_count: np.ndarray  # (T,)
    latency: np.ndarray  # (T, S+1) s by size, never falling; meaningful for the sizes that come
    notes: tuple[str, ...]  # repairs of the catalogue's figures, and types left out


def make_offers(types: Sequence[InstanceType], model: str, sizes: SizeDistribution) -> Offers:
    """Return what the catalogue offers for a model under a distribution of sizes.

    Raises:
        InvalidInput: No type runs the model, or a table does not hold all the sizes that come.
    """
    fit = [kind for kind in types if model in kind.profile]
    if not fit:
        known = sorted({name for kind in types for name in kind.profile})
        raise InvalidInput("model", f"no instance type has a profile of {model!r}", f"use {', '.join(known)}")
    notes = [f"{kind.name} has no profile of {model} and is left out" for kind in types if kind not in fit]
    for kind in fit:
        profile = kind.profile[model]
        notes += _repairs(f"the profile of {model} on {kind.name}", profile)
        problem = profile.unknown(sizes.smallest, sizes.largest)
        if problem:
            fix = "measure the missing sizes, or give alpha_ms and beta_ms"
            raise InvalidInput(f"profile of {model} on {kind.name}", problem, fix)
    items = np.arange(sizes.probability.size)
    return Offers(
        names=tuple(kind.name for kind in fit),
        price=np.array([kind.price for kind in fit]),
        max_count=np.array([kind.max_count for kind in fit]),
        latency=np.stack([kind.profile[model].latency(items) for kind in fit]),
        notes=tuple(notes),
    )


def _repairs(what: str, profile: Line | Table) -> list[str]:
    """Return what was repaired in a profile."""
    notes = []
    if profile.left_out():
        notes.append(
            f"{what} has times that are not positive; left out at {_listed(profile.left_out())} items"
        )
    if profile.raised():
        sizes = _listed(profile.raised())
        notes.append(f"{what} falls; raised to the longest time of a smaller size at {sizes} items")
    return notes


def _listed(sizes: tuple[int, ...]) -> str:
    text = ", ".join(str(size) for size in sizes[:5])
    return f"{text} and {len(sizes) - 5} more" if len(sizes) > 5 else text
