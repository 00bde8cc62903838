"""Simulated targets kept by the daemon as fast as it can, and what it wrote down of their lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from tuner.control.daemon.daemon import Daemon
from tuner.control.store.store import Store
from tuner.experiments.daemon.file import STATE, daemon_file

__all__ = ["Life", "keep_simulated", "simulated_url"]


class Life(NamedTuple):
    """What the store says of one target; arrays over its windows."""

    rate: np.ndarray
    """requests/s"""
    kept: np.ndarray
    """Whether each kept the SLO."""


def simulated_url(model: str, steps: Iterable[tuple[float, float]], seed: int) -> str:
    """Return the URL of a simulated server whose load changes in steps: from a second on, requests/s."""
    text = ",".join(f"{time:g}:{rate:g}" for time, rate in steps)
    return f"sim://{model}?rate={text}&seed={seed}"


def keep_simulated(targets: Sequence[Mapping[str, object]], windows: int) -> list[Life]:
    """Let a daemon keep simulated targets in virtual time.

    Args:
        targets: The URL of each and its other settings, as in the daemon's file but for its name.
        windows: How many each has.
    """
    named = {f"t{number}": target for number, target in enumerate(targets)}
    with daemon_file([{"name": name, **target} for name, target in named.items()]) as path:
        Daemon(path, fast=True, windows=windows, say=lambda *_: None).run()
        with closing(Store(path.with_name(STATE), reading=True)) as store:
            return [_life(store, name) for name in named]


def _life(store: Store, name: str) -> Life:
    rows = store.rows(
        "SELECT rate, kept FROM window JOIN target ON target.id = window.target WHERE name = ? "
        "ORDER BY window.number",
        name,
    )
    return Life(
        rate=np.array([row["rate"] for row in rows]),
        kept=np.array([bool(row["kept"]) for row in rows]),
    )
