"""What a server is tuned toward, and under which conditions: one value, made once and carried whole.

The command line, the laboratory, the environments and the daemon all make the same :class:`Setting`. It is
checked when it is made. Its fields name the options that set them (:mod:`tuner.option`), so that commands and
environments call the same thing by the same name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tuner.duration import format_duration, parse_duration
from tuner.errors import InvalidInput
from tuner.objective import Objective
from tuner.option import is_number, option, options_of, part
from tuner.printable import one_line

if TYPE_CHECKING:
    from tuner.workload import Workload
    from tuner.workload.schedule import RateSchedule

__all__ = [
    "SIMULATED",
    "Load",
    "Rate",
    "Setting",
    "Sli",
    "parse_grids",
    "parse_shapes",
    "parse_window",
    "rate_range",
]

WINDOW = 5.0
"""Length of a window on a live server, s, unless a setting says otherwise: it suits most servers."""
SHORTEST, LONGEST = 0.2, 600.0
"""Windows that a live server can be measured in, s."""
LONGEST_SIZE = 18
"""Digits of a dimension of an input: more would not fit the servers' 64 bits."""


def parse_grids(texts: list[str], name: str = "--knob") -> dict[str, tuple[float, ...]]:
    """Read repeated ``NAME=V,V`` options.

    Args:
        texts: One for each knob.
        name: What the user calls the option.

    Raises:
        InvalidInput: One is malformed or given twice.
    """
    from tuner.knobs import parse_grid

    found: dict[str, tuple[float, ...]] = {}
    for text in texts:
        knob, values = parse_grid(text, name)
        if knob in found:
            raise InvalidInput(
                f"{name} {knob}", "given twice", "give all its values at once, comma-separated"
            )
        found[knob] = values
    return found


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Read repeated ``INPUT=D,D`` options.

    Raises:
        InvalidInput: One is malformed or given twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name, sizes = name.strip(), [part.strip() for part in rest.split(",")]
        if not (name and equals and all(map(_is_size, sizes))):
            problem = f"'{one_line(text, 80)}' is not a shape"
            raise InvalidInput("--shape", problem, "write INPUT=D,D, like image=224,224,3")
        if name in found:
            raise InvalidInput(f"--shape {name}", "given twice", "give one shape for each input")
        found[name] = tuple(int(size) for size in sizes)
    return found


def _is_size(text: str) -> bool:
    """Whether this is a dimension that an input can have. Python reads no number of thousands of digits."""
    return text.isdecimal() and len(text) <= LONGEST_SIZE and int(text) > 0


def parse_window(text: str, name: str = "--window") -> float:
    """Read the length of a window on a live server, s.

    Args:
        text: Such as ``5s``.
        name: What the user calls the option.

    Raises:
        InvalidInput: Not a duration, or outside 0.2 s to 10 min.
    """
    seconds = parse_duration(text, name)
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidInput(name, f"{text} is not between 0.2 s and 10 min", "5s suits most servers")
    return seconds


Rate: TypeAlias = "float | tuple[float, float] | RateSchedule"
"""Requests/s; a range, from which each episode of an environment draws its rate (log-uniform); a schedule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The requests that a server gets.

    A live server is sent requests at a `rate`, or as an `arrival` process says; where neither is given its
    own traffic is watched. A simulated server gets a `workload`, whose nominal rate is `rate`.

    Raises:
        InvalidInput: The rate is no rate, or stands beside an arrival process or a workload with another one;
            or the workload is none.
    """

    rate: Rate | None = field(
        default=None,
        metadata=option(
            "rate",
            kind=float,
            least=0.1,
            most=100_000,
            help="Send this many requests/s (Poisson) and time them. "
            "Default: watch the server's own traffic.",
        ),
    )
    """None: the server's own traffic, or the rate that a simulated model is meant for."""
    arrival: str | None = field(
        default=None,
        metadata=option(
            "arrival",
            help="Instead of --rate: poisson:200, gamma:0.5:200, constant:100, step:30s@100,30s@300, "
            "trace:FILE.",
        ),
    )
    """An arrival process, as text."""
    shapes: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict,
        metadata=option(
            "shapes",
            "--shape",
            kind=list[str],
            read=parse_shapes,
            metavar="INPUT=D,D,..",
            help="Shape of an input with open dimensions, without the batch, for requests of our own. "
            "Repeat.",
        ),
    )
    """Shapes of inputs with open dimensions, without the batch dimension, by the inputs' names."""
    workload: Workload | str | None = field(
        default=None,
        metadata=option(
            "workload",
            metavar="SPEC",
            help="How the load changes: constant, dynamic, wikipedia, trace:FILE.csv, azure:FILE.csv, step, "
            "ramp, burst, with parameters as in step:low=0.5,high=1.5; `tuner workload list` lists them.",
        ),
    )
    """How a simulated load changes over an episode, as text, or with a nominal rate of its own; None: not at
    all."""

    def __post_init__(self) -> None:
        if self.rate is not None and self.arrival is not None:
            raise InvalidInput("--arrival", "given together with --rate", "give one of them")
        self._check_workload()
        if self.rate is None:
            return
        from tuner.workload.schedule import RateSchedule  # commands list their options without numpy

        if not isinstance(self.rate, RateSchedule):
            rate_range(self.rate)
        if self.workload is None or isinstance(self.workload, str) or self.workload.rate == self.rate:
            return
        problem = f"{self.rate} stands beside a workload with a nominal rate of {self.workload.rate:g}"
        raise InvalidInput("rate", problem, "leave it out, or give the workload as text")

    def _check_workload(self) -> None:
        if self.workload is None or isinstance(self.workload, str):
            return
        from tuner.workload import Workload

        if not isinstance(self.workload, Workload):
            raise InvalidInput(
                "--workload", f"{self.workload!r} is no workload", "write step, or make a `Workload`"
            )

    @property
    def nominal(self) -> float | None:
        """The one rate, requests/s; None if none is given.

        Raises:
            InvalidInput: It is a range or a schedule.
        """
        if self.rate is None or is_number(self.rate):
            return self.rate
        raise InvalidInput("rate", f"{self.rate} is not one number", "write 200.0")


def rate_range(rate: float | tuple[float, float], most: float | None = None) -> tuple[float, float]:
    """Return the least and the largest of a rate or a range of rates, requests/s.

    Args:
        rate: The rate, or the least and the largest.
        most: What may be offered at most; None for what a single server may be.

    Raises:
        InvalidInput: They cannot be offered, or are no numbers.
    """
    from tuner.workload.workload import FASTEST

    most = FASTEST if most is None else most
    low, high = rate if isinstance(rate, tuple) and len(rate) == 2 else (rate, rate)
    if not (is_number(low) and is_number(high) and 0 < low <= high <= most):
        problem = f"{rate!r} is not a rate or range above 0 and at most {most:,.0f} requests/s"
        raise InvalidInput("rate", problem, "write 200.0 or (100.0, 400.0)")
    return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class Sli:
    """A service level indicator: a query to a Prometheus server for the latency that the SLO bounds.

    It stands in for what the server itself, or whoever sends our own requests, measures.

    Raises:
        InvalidInput: The address or the query is missing.
    """

    prometheus: str = field(
        default="",
        metadata=option(
            "sli_prometheus",
            metavar="URL",
            help="A Prometheus server that knows the latency, with --sli-query.",
        ),
    )
    """The address of the Prometheus server."""
    query: str = field(
        default="",
        metadata=option(
            "sli_query", metavar="PROMQL", help="Gives seconds; {window} and {quantile} are filled in."
        ),
    )
    """PromQL that gives seconds."""
    token_file: Path | None = field(
        default=None,
        metadata=option(
            "sli_token_file", kind=Path, metavar="FILE", help="A file with the bearer token for it."
        ),
    )
    """A file with the bearer token for it."""

    def __post_init__(self) -> None:
        if not (self.prometheus and self.query):
            missing = "--sli-query" if self.prometheus else "--sli-prometheus"
            raise InvalidInput(missing, "missing", "--sli-prometheus and --sli-query belong together")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a server is tuned toward, and under which conditions.

    All but the objective may be left to the server or to the environment.

    Raises:
        InvalidInput: The window or the limit of foreign processes is no such number.
    """

    objective: Objective = field(metadata=part(Objective))
    """What is minimised: the SLO, the goal, and the weight of changes."""
    load: Load = field(default_factory=Load, metadata=part(Load))
    foreign_limit: float | None = field(
        default=None,
        metadata=option(
            "foreign_limit",
            kind=float,
            least=0.0,
            help="Cores of foreign processes above which a window is not used, however steady they are.",
        ),
    )
    """Cores used by foreign processes above which a window is disturbed; None: only a move disturbs."""
    sli: Sli | None = field(default=None, metadata=part(Sli))
    """Where the latency comes from that the SLO bounds; None: from the server, or from our own requests."""
    grids: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict,
        metadata=option(
            "grids",
            "--knob",
            kind=list[str],
            read=parse_grids,
            metavar="NAME=V,V,..",
            help="Grid of a knob, such as instances=1,2,4. Repeat.",
        ),
    )
    """Grids that replace the server's own, by knob name."""
    window: float | None = field(
        default=None,
        metadata=option(
            "window",
            read=parse_window,
            usual=format_duration(WINDOW),
            help="Length of a measuring window.",
        ),
    )
    """Length of a window, s; None: 5 s on a live server, in an environment what its server model asks for."""
    server: object | None = field(
        default=None,
        metadata=option(
            "server",
            kind=Path,
            help="A server model from `tuner calibrate`, in place of the environment's own.",
        ),
    )
    """The model of the server, where it is simulated; None: the environment's own."""

    def __post_init__(self) -> None:
        if self.window is not None and not (is_number(self.window) and 0 < self.window < math.inf):
            raise InvalidInput("window", f"{self.window!r} is not a positive number of seconds")
        if self.foreign_limit is not None and not (is_number(self.foreign_limit) and self.foreign_limit >= 0):
            raise InvalidInput(
                "--foreign-limit", f"{self.foreign_limit!r} is not a number of cores of at least 0"
            )

    @property
    def seconds(self) -> float:
        """Length of a window, s; 5 s if it was left open."""
        return WINDOW if self.window is None else self.window

    def objective_on(self, cores: float) -> Objective:
        """Return the objective for a machine with a number of CPU cores, which shares of the CPU refer to."""
        return replace(self.objective, cores=cores)


SIMULATED = ("server", "rate", "workload", *options_of(Objective), "grids", "window")
"""The options of a setting that mean something where the server is simulated."""
