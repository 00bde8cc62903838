"""Symphony, section 4.2 and the analytic columns of Table 4: the ideal with and without coordination."""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style
from tuner.report.series import Series
from tuner.scheduling.analysis import Ideal, fewest_accelerators, staggered, uncoordinated
from tuner.scheduling.cluster import linear_latency

__all__ = ["plot", "run"]

NAME = "symphony-analytic"
PUBLISHED = {  # model -> (batch, requests/s) without coordination, and staggered
    "ResNet50": ((7, 4501), (16, 5839)),
    "InceptionResNetV2": ((3, 713), (8, 1083)),
}
MOST = 32
"""Accelerators up to which the curves go."""


def run(options: Options) -> Result:
    """Compute both ideals for the two models; nothing is simulated, so there are no seeds."""
    rows: list[Row] = []
    series: list[Series] = []
    for setup in options.track(TABLE_4, "models"):
        rows += _rows(setup)
        series += _curves(setup)
    return Result(experiment=NAME, seeds=1, rows=rows, series=series)


def _ideals(setup: Setup, accelerators: int) -> tuple[Ideal, Ideal]:
    """The ideal without coordination, and staggered."""
    one, slo = setup.model, setup.slo_ms / 1e3
    latency = linear_latency(one.alpha_ms / 1e3, one.beta_ms / 1e3, slo)
    return uncoordinated(latency, slo, accelerators), staggered(latency, slo, accelerators)


def _rows(setup: Setup) -> list[Row]:
    one, slo = setup.model, setup.slo_ms / 1e3
    rows = []
    ways = zip(("no coordination", "staggered"), _ideals(setup, setup.accelerators), strict=True)
    for (way, ideal), (batch, rate) in zip(ways, PUBLISHED[one.name], strict=True):
        name = f"{one.name}, {way}"
        wait = f"longest wait {ideal.queueing * 1e3:.2f} ms"
        rows += [
            Row(id=f"{name}: batch", published=batch, measured=ideal.batch, unit="requests", note=wait),
            Row(id=f"{name}: goodput", published=rate, measured=round(ideal.rate), unit="requests/s"),
        ]
    latency = linear_latency(one.alpha_ms / 1e3, one.beta_ms / 1e3, slo)
    rate = PUBLISHED[one.name][1][1]
    least = fewest_accelerators(latency, slo, rate)
    note = f"equations 2 and 3 solved for N at {rate} requests/s"
    rows.append(
        Row(id=f"{one.name}: fewest accelerators", published=setup.accelerators, measured=least, note=note)
    )
    return rows


def _curves(setup: Setup) -> list[Series]:
    counts = [float(n) for n in range(1, MOST + 1)]
    both = [_ideals(setup, int(count)) for count in counts]
    panel = f"{setup.model.name}, SLO {setup.slo_ms:g} ms"
    return [
        Series(
            name=name,
            panel=panel,
            x=counts,
            y=[round(pair[way].rate / n, 3) for n, pair in zip(counts, both, strict=True)],
        )
        for way, name in enumerate(("no coordination", "staggered"))
    ]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the goodput per accelerator against the number of accelerators."""
    panels = list(dict.fromkeys(series.panel for series in result.series))
    figure, axes = style.figure(
        "What coordination is worth, with perfectly even arrivals", columns=len(panels)
    )
    for axis, panel, setup in zip(axes.flat, panels, TABLE_4, strict=True):
        style.curves(axis, result.panel(panel))
        count = setup.accelerators
        rates = [rate / count for _, rate in PUBLISHED[setup.model.name]]
        style.published(axis, [count] * len(rates), rates, "published, Table 4")
        axis.set(title=panel, xlabel="accelerators", ylabel="goodput per accelerator, requests/s")
        axis.set_ylim(bottom=0)
        style.legend(axis, loc="lower right")
    return [style.save(figure, folder, NAME)]
