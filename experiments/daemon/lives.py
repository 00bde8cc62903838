"""Simulated targets kept by the daemon as fast as it can, and what it wrote down of their lives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.control.daemon.daemon import Daemon
from tuner.control.store.store import Store

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


def keep_simulated(targets: Sequence[tuple[str, str]], windows: int) -> list[Life]:
    """Let a daemon keep simulated targets in virtual time.

    Args:
        targets: The URL of each, and its other settings as they stand in the daemon's file.
        windows: How many each has.
    """
    lines = [
        f"  - {{name: t{number}, url: '{url}', {settings}}}\n"
        for number, (url, settings) in enumerate(targets)
    ]
    with tempfile.TemporaryDirectory(prefix="servetune-lives-") as folder:
        path = Path(folder) / "servetune.yaml"
        path.write_text("state: servetune.db\ntargets:\n" + "".join(lines))
        Daemon(path, fast=True, windows=windows, say=lambda *_: None).run()
        store = Store(path.with_name("servetune.db"), reading=True)
        try:
            return [_life(store, f"t{number}") for number in range(len(targets))]
        finally:
            store.close()


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
