"""Many kinds of faults injected into a live server, its network and the daemon that keeps it.

A real Triton serves clients; between it and the daemon stand proxies that can hang, cut and lie. After each
fault it is asked whether clients are answered, whether the server runs the last good configuration or one
that the daemon gives a reason for, whether a traceback was printed, and how long it took until a window was
usable again and kept the SLO.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuner.experiments.daemon.bed import TARGET, Bed, open_bed
from tuner.experiments.daemon.kinds import KINDS, BrokenPromise, Kind
from tuner.experiments.daemon.process import wait_until
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DaemonFaults", "FaultOutcome", "suffer", "summary"]

LIMIT = 3.0
"""Windows within which it has to recover."""
LONGEST = 12.0
"""Windows after which it is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultOutcome:
    """What came of one fault."""

    kind: str
    seed: int
    form: str
    """Which of its forms it had."""
    windows: float
    """From the end of the fault until the end of a usable window that kept the SLO, in windows."""
    serving: bool
    """Whether clients were answered after that."""
    left: str
    """Why the server runs what it runs; empty if the daemon does not know."""
    traceback: bool
    broken: str
    """What of the kind's promise did not hold; empty if all did."""
    failures: int
    """Requests of clients that failed meanwhile, the fault's own doing included."""

    @property
    def passed(self) -> bool:
        """Whether everything was as it must be."""
        sound = self.serving and bool(self.left) and not self.traceback and not self.broken
        return sound and self.windows <= LIMIT


@experiment(
    name="daemon-faults",
    title="Faults in a live server, its network and the daemon that keeps it",
    minutes=45,
    live=True,
)
class DaemonFaults(OneTaskExperiment[list[FaultOutcome]]):
    """Injects every kind once for each seed, which gives the order and the forms."""

    window = Scaled(5.0, quick=3.0)
    """s."""

    def measure(self, _: None, seed: int) -> list[FaultOutcome]:
        return suffer(seed, self.window, KINDS)

    def rows(self, found: Answers[None, list[FaultOutcome]]) -> list[Row]:
        return summary(_all(found))

    def configuration(self) -> dict[str, Any]:
        return {"window": self.window, "kinds": len(KINDS)}

    def details(self, found: Answers[None, list[FaultOutcome]]) -> dict[str, Any]:
        return {"faults": [asdict(verdict) | {"passed": verdict.passed} for verdict in _all(found)]}


def _all(found: Answers[None, list[FaultOutcome]]) -> list[FaultOutcome]:
    return [verdict for verdicts in found[None] for verdict in verdicts]


def suffer(seed: int, window: float, kinds: Sequence[Kind]) -> list[FaultOutcome]:
    """Inject kinds of faults one after the other into one bed.

    Args:
        seed: Of their order and forms.
        window: Of the daemon, s.
        kinds: What is injected.
    """
    rng = np.random.default_rng(seed)
    with open_bed(window, seed) as bed:
        return [inject(bed, kinds[int(index)], rng, seed) for index in rng.permutation(len(kinds))]


def inject(bed: Bed, kind: Kind, rng: np.random.Generator, seed: int) -> FaultOutcome:
    """Inject one fault, wait until the daemon is over it, and judge."""
    lines, failed = len(bed.daemon.lines), bed.load.totals().failed
    form, broken = "", ""
    try:
        form = kind.inject(bed, rng)
    except BrokenPromise as found:
        broken = str(found)
    ended, since = time.monotonic(), bed.daemon.seen(TARGET)
    recovered = wait_until(lambda: bed.daemon.usable(TARGET, since), LONGEST * bed.window)
    windows = (time.monotonic() - ended) / bed.window if recovered else math.inf
    left = explanation(bed)
    if still_open := bed.open_decisions():
        broken = broken or f"{still_open} decisions have no end"
    outcome = FaultOutcome(
        kind=kind.name,
        seed=seed,
        form=form,
        windows=round(windows, 2),
        serving=bed.serving(),
        left=left,
        traceback=bool(bed.daemon.said("Traceback", lines)),
        broken=broken,
        failures=bed.load.totals().failed - failed,
    )
    kind.after(bed)
    return outcome


def explanation(bed: Bed) -> str:
    """Return why the server runs what it runs; while a change is under way nobody can say, so wait for it."""
    found = ""

    def known() -> bool:
        nonlocal found
        found = bed.explained()
        return bool(found)

    wait_until(known, bed.window)
    return found


def summary(outcomes: list[FaultOutcome]) -> list[Row]:
    """Return a row for each kind, and one for all."""
    rows = [_row(kind, [v for v in outcomes if v.kind == kind.name]) for kind in KINDS]
    passed = sum(v.passed for v in outcomes)
    total = Row(
        id="faults after which everything was as it must be",
        published=len(outcomes),
        measured=passed,
        note=f"of {len(outcomes)}, {len(KINDS)} kinds",
    )
    return [*rows, total]


def _row(kind: Kind, outcomes: list[FaultOutcome]) -> Row:
    if not outcomes:
        return Row(id=kind.name, measured=None, note=f"promised: {kind.promise}; not injected")
    good = sum(bool(v.left) and "last good" in v.left for v in outcomes)
    stated = sum(bool(v.left) for v in outcomes) - good
    serving, tracebacks = sum(v.serving for v in outcomes), sum(v.traceback for v in outcomes)
    kept = sum(not v.broken for v in outcomes)
    note = (
        f"promised: {kind.promise} ({kept} of {len(outcomes)}); target: at most; "
        f"{serving} of {len(outcomes)} serving, {good} with the last good configuration, "
        f"{stated} with a stated reason, {tracebacks} tracebacks"
    )
    return row(kind.name, [v.windows for v in outcomes], unit="windows", published=LIMIT, note=note)
