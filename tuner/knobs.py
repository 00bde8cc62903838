"""Knobs, configurations and the space they span.

A knob is one tunable setting with an ordered grid of native values. A configuration gives every
knob a value. Inside the space configurations are numbered 0..size-1 (row-major, last knob fastest),
so that agents and compiled kernels work on integers and arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from numbers import Real

import numpy as np

from tuner.duration import format_duration, parse_duration
from tuner.errors import InvalidInput

__all__ = [
    "ApplyCost",
    "Configuration",
    "Grids",
    "Knob",
    "KnobSpace",
    "Role",
    "format_value",
    "parse_grid",
    "parse_value",
]

Grids = Mapping[str, tuple[float, ...]]
"""Knob name -> grid values: in place of default grids, and of further knobs."""
MAX_SIZE = 1_000_000
"""Largest number of configurations a space may have; agents keep an array of this length."""
ROUNDING = 1e-6
"""Largest relative difference between two values that are one, but for rounding by servers and files."""


class ApplyCost(IntEnum):
    """What changing a knob costs the server, from cheapest to dearest."""

    FREE = 0
    """Takes effect at once and disturbs no request."""
    IN_PLACE = 1
    """The model keeps serving, with less capacity while the change is made."""
    RELOAD = 2
    """The model is loaded again beside the old one."""
    RESTART = 3
    """The server process is started again."""


class Role(StrEnum):
    """What a knob does to the whole server, whatever that server calls it.

    Servers use different names for the same thing (``max_queue_delay``, ``batch_timeout``). The adapter or
    simulated server that makes a knob knows, and gives it its role; nothing else looks at a knob's name.
    """

    BATCH = "batch"
    """How many requests are executed together at most; 1 is no batching, 0 no limit of the knob's own."""
    DELAY = "delay"
    """How long a request waits at most for others to join its batch, s."""
    PARALLELISM = "parallelism"
    """How many batches (where nothing is batched: requests) execute at once; 0: one for each core."""
    INTER_OP = "inter_op"
    """How many operations of one request execute at once; 0: one for each core."""
    INTRA_OP = "intra_op"
    """How many threads one operation is split among; 0: one for each core."""
    OTHER = "other"
    """Anything else, such as a model's own parameter. Such a knob is tuned by its measured effect alone."""


class Configuration(Mapping[str, float]):
    """A value for every knob: an immutable, hashable mapping from knob name to native value.

    >>> Configuration(max_batch_size=8, max_queue_delay=0.002)
    Configuration(max_batch_size=8, max_queue_delay=0.002)
    """

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, float] | None = None, /, **more: float) -> None:
        merged = {**(values or {}), **more}
        self._items = tuple((name, merged[name]) for name in merged)

    def __getitem__(self, name: str) -> float:
        for key, value in self._items:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return f"Configuration({', '.join(f'{name}={value!r}' for name, value in self._named())})"

    def _named(self) -> Iterator[tuple[str, float]]:
        return iter(self._items)

    def replace(self, **changes: float) -> Configuration:
        """Return a copy with some values changed."""
        return Configuration(dict(self), **changes)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One tunable setting.

    Raises:
        InvalidInput: The grid is no tuple of numbers, empty, not strictly increasing, or lacks the default.
    """

    name: str
    """The server's own word where it has one, such as ``max_batch_size``."""
    grid: tuple[float, ...]
    """Native values in increasing order; durations in seconds, counts as whole numbers."""
    default: float
    """The value that the server has unless somebody sets it; one of the grid."""
    apply_cost: ApplyCost = ApplyCost.RELOAD
    """What changing it costs."""
    unit: str = ""
    """``s`` for durations, empty for counts."""
    role: Role = Role.OTHER
    """What it does to the server."""
    places: int = 1
    """How often the server has what the value counts, such as once on each of its GPUs."""
    of_clients: bool = False
    """Whether our own clients have it and not the server, which cannot lose it."""
    idle_when: tuple[str, float] | None = None
    """Another knob and the value of it with which this knob has no effect."""
    idle_value: float = 0.0
    """What the server reports for this knob then; need not be on the grid."""

    def __post_init__(self) -> None:
        setting = f"knob {self.name}"
        numbers = isinstance(self.grid, Sequence) and not isinstance(self.grid, str)
        if not (numbers and all(isinstance(value, Real) for value in self.grid)):
            raise InvalidInput(setting, f"the grid {self.grid!r} is no tuple of numbers", "write (1, 2, 4)")
        if not self.grid:
            raise InvalidInput(setting, "the grid is empty", f"write {self.name}=1,2,4")
        if not all(math.isfinite(value) for value in self.grid):
            raise InvalidInput(setting, f"the grid {self.grid} has a value that is not finite")
        if any(low >= high for low, high in zip(self.grid, self.grid[1:], strict=False)):
            raise InvalidInput(
                setting, f"the grid {self.grid} does not increase", "order it, each value once"
            )
        if self.default not in self.grid:
            raise InvalidInput(setting, f"the default {self.default} is not in the grid {self.grid}")
        object.__setattr__(self, "grid", tuple(self.grid))  # equal grids are equal, however they were written

    def format(self, value: float) -> str:
        """Write a value for people: ``8`` or ``2ms``."""
        return format_value(value, self.unit)

    def nearest(self, value: float) -> float:
        """Return the grid value closest to ``value`` (the lower one on a tie)."""
        return min(self.grid, key=lambda candidate: (abs(candidate - value), candidate))


class KnobSpace:
    """All configurations of some knobs: one for each combination of their grid values.

    Distances are Euclidean in grid steps (RRL, section 4.2 and Fig. 9), so that neighbouring values
    are one apart whatever their unit.

    Args:
        knobs: With different names and different roles; only the role *other* may occur several times.
            Their order is the order of coordinates. A server without knobs has one configuration, the empty
            one, and can only be observed.
        fixed: The values of roles that no knob has, where the adapter knows them.

    Raises:
        InvalidInput: Two knobs have the same name, or there are too many configurations.
        ValueError: Two knobs have the same role.
    """

    def __init__(self, knobs: Iterable[Knob], *, fixed: Mapping[Role, float] | None = None) -> None:
        self.knobs = tuple(knobs)
        self.fixed = dict(fixed or {})
        roles = [knob.role for knob in self.knobs if knob.role is not Role.OTHER]
        if len({*roles, *self.fixed}) != len(roles) + len(self.fixed):
            raise ValueError(f"roles must differ, but got {roles} and {self.fixed=}")
        names = [knob.name for knob in self.knobs]
        if len(set(names)) != len(names):
            raise InvalidInput("knobs", f"names must differ, but got {names}")
        self.names = tuple(names)
        self.shape = tuple(len(knob.grid) for knob in self.knobs)
        self.size = math.prod(self.shape)
        if self.size > MAX_SIZE:
            raise InvalidInput(
                "knobs", f"{self.size} configurations are more than {MAX_SIZE}", "use coarser grids"
            )

    def __repr__(self) -> str:
        return f"KnobSpace({list(self.knobs)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnobSpace) and self.knobs == other.knobs

    def __hash__(self) -> int:
        return hash(self.knobs)

    def __contains__(self, configuration: object) -> bool:
        if not isinstance(configuration, Mapping) or set(configuration) != set(self.names):
            return False
        return all(configuration[knob.name] in knob.grid for knob in self.knobs)

    def with_role(self, role: Role) -> Knob | None:
        """Return the knob that has a role, None if there is none."""
        return next((knob for knob in self.knobs if knob.role is role), None)

    def value_of(self, role: Role, configuration: Mapping[str, float]) -> float | None:
        """Return the value of a role in a configuration, that of all places of the knob together.

        None if it is neither a knob's nor fixed.
        """
        knob = self.with_role(role)
        if knob is None:
            return self.fixed.get(role)
        value = configuration.get(knob.name)
        return value * knob.places if value is not None else None

    @property
    def roles(self) -> dict[str, str]:
        """Knob name -> role, for files; knobs with the role *other* are left out."""
        return {knob.name: knob.role.value for knob in self.knobs if knob.role is not Role.OTHER}

    @cached_property
    def coordinates(self) -> np.ndarray:
        """Grid coordinates of every configuration.   # (size, knobs) int32, steps."""
        coordinates = np.indices(self.shape, dtype=np.int32).reshape(len(self.shape), self.size).T.copy()
        coordinates.setflags(write=False)
        return coordinates

    @cached_property
    def canonical(self) -> np.ndarray:
        """For every configuration the number of the one that stands for all with its effect.   # (size,)."""
        steps = self.coordinates.copy()
        for column, knob in enumerate(self.knobs):
            if knob.idle_when is None or knob.idle_when[0] not in self.names:
                continue
            other = self.names.index(knob.idle_when[0])
            grid = np.array(self.knobs[other].grid)
            steps[grid[steps[:, other]] == knob.idle_when[1], column] = knob.grid.index(
                knob.nearest(knob.idle_value)
            )
        # Without knobs there is one configuration, which numpy would return as a scalar.
        return np.asarray(np.ravel_multi_index(tuple(steps.T), self.shape)).reshape(self.size)

    def column(self, name: str) -> np.ndarray:
        """Return the value of a knob in every configuration.   # (size,)."""
        number = self.names.index(name)
        return np.asarray(np.array(self.knobs[number].grid)[self.coordinates[:, number]])

    def effective(self, configuration: Mapping[str, float]) -> Configuration:
        """Return a configuration as the server reports it: knobs without effect have their idle value."""
        values = {name: float(value) for name, value in configuration.items()}
        for knob in self.knobs:
            if knob.name in values and knob.idle_when is not None:
                other, value = knob.idle_when
                if values.get(other) == value:
                    values[knob.name] = knob.idle_value
        return Configuration(values)

    def with_clients(self, configuration: Mapping[str, float], clients: Mapping[str, float]) -> Configuration:
        """Return a configuration in which our own clients have what they have in another one.

        Args:
            configuration: What a server runs, such as after a restart.
            clients: The other one.
        """
        ours = [knob.name for knob in self.knobs if knob.of_clients and knob.name in clients]
        return Configuration({**configuration, **{name: clients[name] for name in ours}})

    @cached_property
    def distinct(self) -> np.ndarray:
        """The numbers of configurations that differ in effect.   # (n,) int64."""
        return np.unique(self.canonical)

    @cached_property
    def default(self) -> Configuration:
        """The configuration in which every knob has its default."""
        return Configuration({knob.name: knob.default for knob in self.knobs})

    def check_complete(self, configuration: Mapping[str, float]) -> None:
        """Check that a configuration has a value for every knob, and for nothing else.

        Raises:
            InvalidInput: It has not; the message names the knob.
        """
        if unknown := set(configuration) - set(self.names):
            raise InvalidInput(f"knob {min(unknown)}", "unknown", f"the knobs are {', '.join(self.names)}")
        for name in self.names:
            if name not in configuration:
                raise InvalidInput(f"knob {name}", "has no value", "a configuration gives every knob one")

    def encode(self, configuration: Mapping[str, float]) -> int:
        """Return the number of a configuration.

        Raises:
            InvalidInput: A knob is missing, unknown or has a value outside its grid.
        """
        self.check_complete(configuration)
        steps = []
        for knob in self.knobs:
            value = configuration[knob.name]
            if value not in knob.grid:
                raise InvalidInput(f"knob {knob.name}", f"{value} is not in the grid {knob.grid}")
            steps.append(knob.grid.index(value))
        return int(np.ravel_multi_index(tuple(steps), self.shape))

    def decode(self, index: int) -> Configuration:
        """Return the configuration of a number in 0..size-1."""
        if not 0 <= index < self.size:
            raise InvalidInput("configuration", f"number {index} is outside 0..{self.size - 1}")
        steps = np.unravel_index(index, self.shape)
        return Configuration({k.name: k.grid[int(s)] for k, s in zip(self.knobs, steps, strict=True)})

    def nearest(self, configuration: Mapping[str, float]) -> Configuration:
        """Return the configuration on the grid that is closest to any values, such as a running server's."""
        return Configuration({k.name: k.nearest(configuration.get(k.name, k.default)) for k in self.knobs})

    def completed(self, some: Mapping[str, float], running: Mapping[str, float]) -> Configuration:
        """Return a configuration that lacks knobs with the values closest to what runs of those.

        Args:
            some: Values of some of the knobs, or of knobs that are none of these.
            running: What a server runs; it may be on no grid.
        """
        return Configuration({**self.nearest(running), **some})

    def same(self, one: Mapping[str, float], other: Mapping[str, float]) -> bool:
        """Whether two configurations are nearest to the same one of these."""
        return self.nearest(one) == self.nearest(other)

    def equal(self, one: Mapping[str, float], other: Mapping[str, float]) -> bool:
        """Whether two configurations have the same effect, apart from rounding by servers and files.

        Two that are :meth:`same` need not be equal, if the grids lack what one of them has. A knob that only
        one of them has a value for makes no difference.
        """
        a, b = self.effective(one), self.effective(other)
        known = [name for name in self.names if name in a and name in b]
        return all(math.isclose(a[name], b[name], rel_tol=ROUNDING) for name in known)

    def covers(self, configuration: Mapping[str, float]) -> bool:
        """Whether a configuration is one of these, apart from rounding by servers and files."""
        nearest = self.nearest(configuration)
        return set(configuration) == set(self.names) and all(
            math.isclose(configuration[name], nearest[name], rel_tol=ROUNDING) for name in self.names
        )

    def distances(self, index: int) -> np.ndarray:
        """Euclidean distance in grid steps from one configuration to all.   # (size,) steps."""
        return np.asarray(np.sqrt(self._squares(index)))

    def distance(self, a: int, b: int) -> float:
        """Euclidean distance in grid steps between two configurations."""
        return float(np.linalg.norm(self.coordinates[a].astype(float) - self.coordinates[b]))

    def region(self, index: int, delta: float) -> np.ndarray:
        """All configurations within ``delta`` grid steps of one, with it (``C(c_t)``).   # (n,) int64."""
        return np.asarray(np.flatnonzero(self._squares(index) <= (delta + 1e-9) ** 2))

    def _squares(self, index: int) -> np.ndarray:
        """Squared distances from one configuration to all: whole numbers.   # (size,)."""
        offsets = self.coordinates - self.coordinates[index]
        return np.asarray(np.einsum("ij,ij->i", offsets, offsets))

    def neighbours(self, index: int) -> np.ndarray:
        """Configurations that differ by one step of one knob.   # (n,) int64."""
        region = self.region(index, 1.0)
        return np.asarray(region[region != index])

    def sample(self, generator: np.random.Generator) -> Configuration:
        """Draw a configuration uniformly."""
        return self.decode(int(generator.integers(self.size)))

    def features(self) -> np.ndarray:
        """Coordinates scaled to 0..1 per knob, for function approximators.   # (size, knobs) float32."""
        steps = np.maximum(np.array(self.shape) - 1, 1)
        return np.asarray(self.coordinates / steps, dtype=np.float32)

    def apply_cost(self, old: Mapping[str, float], new: Mapping[str, float]) -> ApplyCost:
        """What changing one configuration to another costs: as much as the dearest knob that differs."""
        costs = [knob.apply_cost for knob in self.knobs if old.get(knob.name) != new.get(knob.name)]
        return max(costs, default=ApplyCost.FREE)

    def format(self, configuration: Mapping[str, float]) -> str:
        """Write a configuration for people: ``max_batch_size=8 max_queue_delay=2ms instances=1``."""
        return " ".join(
            f"{k.name}={k.format(configuration[k.name])}" for k in self.knobs if k.name in configuration
        )

    def to_json(self) -> list[dict[str, object]]:
        """Return the knobs as plain values, for files."""
        return [
            {
                "name": knob.name,
                "grid": list(knob.grid),
                "default": knob.default,
                "apply_cost": knob.apply_cost.name.lower(),
                "unit": knob.unit,
                "role": knob.role.value,
            }
            for knob in self.knobs
        ]


def format_value(value: float, unit: str) -> str:
    """Write a value of a knob with this unit for people: ``8`` or ``2ms``."""
    return format_duration(value) if unit == "s" else f"{value:g}"


def parse_grid(text: str, setting: str = "--knob") -> tuple[str, tuple[float, ...]]:
    """Read ``NAME=VALUE,VALUE,...``; values are numbers or durations (``2ms``).

    Returns:
        The name and the values in increasing order, durations in seconds.

    Raises:
        InvalidInput: The text does not have that form.
    """
    name, equals, rest = text.partition("=")
    values = [part.strip() for part in rest.split(",") if part.strip()]
    if not equals or not name.strip() or not values:
        raise InvalidInput(
            setting, f"'{text}' is not a grid", "write NAME=VALUE,VALUE, like max_batch_size=1,4,16"
        )
    numbers = {parse_value(value, f"{setting} {name.strip()}") for value in values}
    return name.strip(), tuple(sorted(numbers))


def parse_value(text: str, setting: str) -> float:
    """Read a knob's value: a number, or a duration (``2ms``) in seconds.

    Raises:
        InvalidInput: It is neither, or not finite.
    """
    try:
        number = float(text)
    except ValueError:
        try:
            number = parse_duration(text, setting)
        except InvalidInput:
            problem = f"'{text}' is neither a number nor a duration"
            raise InvalidInput(setting, problem, "write it like 8 or 2ms") from None
    if not math.isfinite(number):
        raise InvalidInput(setting, f"'{text}' is not finite")
    return number
