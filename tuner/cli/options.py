"""Options that several commands share, each with one name, one unit and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.profiler.indicator import PrometheusIndicator

__all__ = [
    "Arrival",
    "ChangeCost",
    "ForeignLimit",
    "Goal",
    "Knobs",
    "Policy",
    "Rate",
    "Seed",
    "Shapes",
    "SliPrometheus",
    "SliQuery",
    "SliToken",
    "SloText",
    "Target",
    "Window",
    "grids",
    "indicator",
    "shapes",
    "window_seconds",
]

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="triton://HOST:8001/MODEL?metrics=8002, tfserving://HOST:8500/MODEL?rest=8501, or sim://mlp.",
    ),
]
SloText = Annotated[
    str, typer.Option("--slo", metavar="STAT=LATENCY", help="Such as p95=30ms, p99=1s, mean=5ms.")
]
Goal = Annotated[
    str,
    typer.Option(
        "--objective",
        help="latency: the least; strict: a broken SLO costs more; cpu, gpu: the least use that keeps it.",
    ),
]
ChangeCost = Annotated[
    float,
    typer.Option(
        "--change-cost",
        min=0.0,
        help="Weight of what changes cost: 1 if requests wait for the whole change, 0 if they are free.",
    ),
]
Knobs = Annotated[
    list[str] | None,
    typer.Option(
        "--knob", metavar="NAME=V,V,..", help="Grid of a knob, such as max_queue_delay=0,2ms,5ms. Repeat."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.1,
        max=100_000,
        help="Send so many requests/s (Poisson) and time them. Default: watch the server's own traffic.",
    ),
]
Arrival = Annotated[
    str | None,
    typer.Option(
        "--arrival",
        help="Instead of --rate: poisson:200, gamma:0.5:200, constant:100, step:30s@100,30s@300, trace:FILE.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=D,D,..",
        help="Shape of an input with open dimensions, without the batch, for requests of our own. Repeat.",
    ),
]
Window = Annotated[str, typer.Option("--window", help="Length of a measuring window.")]
Policy = Annotated[
    Path | None,
    typer.Option("--policy", metavar="DIR", help="Start from a policy that `tuner train` or a run saved."),
]
ForeignLimit = Annotated[
    float,
    typer.Option(
        "--foreign-limit", min=0.0, help="Cores of foreign processes above which a window is not used."
    ),
]
SliPrometheus = Annotated[
    str | None,
    typer.Option(
        "--sli-prometheus",
        metavar="URL",
        help="A Prometheus server that knows the latency, with --sli-query.",
    ),
]
SliQuery = Annotated[
    str | None,
    typer.Option(
        "--sli-query", metavar="PROMQL", help="Gives seconds; {window} and {quantile} are filled in."
    ),
]
SliToken = Annotated[
    Path | None,
    typer.Option("--sli-token-file", metavar="FILE", help="A file with the bearer token for it."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of everything random.")]


def grids(knobs: list[str] | None, setting: str = "--knob") -> dict[str, tuple[float, ...]]:
    """Read repeated ``NAME=V,V`` options.

    Raises:
        InvalidInput: One is malformed or given twice.
    """
    from tuner.errors import InvalidInput
    from tuner.knobs import parse_grid

    found: dict[str, tuple[float, ...]] = {}
    for text in knobs or []:
        name, values = parse_grid(text, setting)
        if name in found:
            raise InvalidInput(
                f"{setting} {name}", "given twice", "give all its values at once, comma-separated"
            )
        found[name] = values
    return found


def shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Read repeated ``INPUT=D,D`` options.

    Raises:
        InvalidInput: One is malformed or given twice.
    """
    from tuner.errors import InvalidInput

    found: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, equals, rest = text.partition("=")
        sizes = [part.strip() for part in rest.split(",")]
        if not (name and equals and all(size.isdecimal() and int(size) > 0 for size in sizes)):
            raise InvalidInput("--shape", f"'{text}' is not a shape", "write INPUT=D,D, like image=224,224,3")
        if name in found:
            raise InvalidInput(f"--shape {name}", "given twice", "give one shape for each input")
        found[name] = tuple(int(size) for size in sizes)
    return found


def window_seconds(text: str) -> float:
    """Read the length of a window.

    Raises:
        InvalidInput: Not a duration, or outside 0.2 s to 10 min.
    """
    from tuner.duration import parse_duration
    from tuner.errors import InvalidInput

    seconds = parse_duration(text, "--window")
    if not 0.2 <= seconds <= 600:
        raise InvalidInput("--window", f"{text} is not between 0.2 s and 10 min", "5s suits most servers")
    return seconds


def indicator(
    url: str | None, query: str | None, token: Path | None, *, statistic: str, window: float
) -> PrometheusIndicator | None:
    """Return who else tells the latency, asked once; None if nobody is named.

    Args:
        url: ``--sli-prometheus``.
        query: ``--sli-query``.
        token: ``--sli-token-file``.
        statistic: What the query gives.
        window: Length of a window, s.

    Raises:
        InvalidInput: Only one of both is given, the query cannot be used, or the token would not be safe.
        StorageError: The token's file cannot be read.
        AdapterError: The server does not answer.
    """
    from tuner.errors import InvalidInput

    if url is None and query is None:
        return None
    if url is None or query is None:
        missing = "--sli-prometheus" if url is None else "--sli-query"
        raise InvalidInput(missing, "missing", "--sli-prometheus and --sli-query belong together")
    from tuner.adapters.connection.credentials import read_secret
    from tuner.profiler.indicator import PrometheusIndicator

    secret = read_secret(token, "--sli-token-file") if token is not None else ""
    found = PrometheusIndicator(url=url, query=query, statistic=statistic, token=secret)
    found.check(window)
    return found
