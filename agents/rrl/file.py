"""Writes and reads what RRL has learned: windows or tables, prior or network; checked on the way in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ValidationError

from tuner.agents.policy_file import StoredArrays, check_knobs, damaged, read_policy, write_policy
from tuner.agents.rrl.network.network import layer_shapes
from tuner.agents.rrl.perception import SmoothPerception
from tuner.agents.rrl.presets import PARAMETERS
from tuner.agents.rrl.prior import Prior
from tuner.agents.rrl.table.level_table import LevelTable
from tuner.agents.rrl.table.perception import TablePerception
from tuner.knobs import KnobSpace

__all__ = ["load_perception", "save_perception"]

LARGEST_LOGARITHM = 50.0
"""Fitted parameters are within this."""


def save_perception(folder: Path, perception: SmoothPerception | TablePerception) -> None:
    """Write everything a perception holds to a folder, atomically.

    Raises:
        StorageError: The folder cannot be written.
    """
    first_level: int | None = None
    if isinstance(perception, TablePerception):
        first_level, arrays = perception.estimator.first_level, _table_arrays(perception)
    else:
        arrays = _smooth_arrays(perception)
    write_policy(
        folder,
        space=perception.space,
        parameters=PARAMETERS.dump_python(perception.parameters, mode="json"),
        first_level=first_level,
        arrays=arrays,
    )


def load_perception(
    folder: Path, space: KnobSpace, *, seed: int, synchronous: bool
) -> SmoothPerception | TablePerception:
    """Read what :func:`save_perception` wrote.

    Args:
        folder: Where it was written.
        space: The knobs and grids it must be about.
        seed: Of a network from now on.
        synchronous: As for the perception.

    Raises:
        InvalidInput: The policy is about other knobs or grids; names the first that differs.
        StorageError: There is no policy, or it is damaged.
    """
    manifest, arrays = read_policy(folder)
    check_knobs(folder, manifest, space)
    try:
        parameters = PARAMETERS.validate_python(manifest.parameters)
    except ValidationError as error:
        raise damaged(folder, "its parameters are not valid") from error
    if parameters.perception == "smooth":
        smooth = SmoothPerception(space, parameters, synchronous=synchronous)
        _fill_smooth(folder, arrays, smooth)
        return smooth
    table = TablePerception(space, parameters, seed=seed, synchronous=synchronous)
    _fill_table(folder, arrays, table, manifest.first_level)
    return table


def _smooth_arrays(perception: SmoothPerception) -> dict[str, np.ndarray]:
    drift, prior, measured = perception.drift, perception.prior, perception.measured
    arrays = {
        "windows": measured.rows(),
        "theta": perception.theta,
        "counts": np.array(
            [measured.total, measured.era, perception.fitted, drift.above_since, drift.below_since]
        ),
        "drift": np.array([drift.above, drift.below]),
    }
    return arrays if prior is None else arrays | {"prior_loads": prior.loads, "prior_logs": prior.logs}


def _fill_smooth(folder: Path, arrays: StoredArrays, perception: SmoothPerception) -> None:
    """Check and take over what was saved; ``perception`` is modified in place."""
    size, knobs = perception.space.size, len(perception.space.knobs)
    rows, theta = arrays.take("windows", (None, 5)), arrays.take("theta", (knobs + 3,))
    counts, drift = arrays.take("counts", (5,), "i"), arrays.take("drift", (2,))
    total, era, fitted, above_since, below_since = map(int, counts)
    inside = (
        (rows[:, 2] >= 0) & (rows[:, 2] < size) & (rows[:, 3] >= 0) & (rows[:, 4] >= 0) & (rows[:, 4] <= era)
    )
    finite = all(np.isfinite(array).all() for array in (rows, theta, drift))
    if not (finite and inside.all() and (np.abs(theta) < LARGEST_LOGARITHM).all() and total >= len(rows)):
        raise damaged(folder, "its windows have values out of range")
    if "prior_loads" in arrays:
        loads = arrays.take("prior_loads", (None,))
        logs = arrays.take("prior_logs", (loads.size, size))
        if not (
            loads.size and np.isfinite(loads).all() and (np.diff(loads) > 0).all() and np.isfinite(logs).all()
        ):
            raise damaged(folder, "its prior has values out of range")
        perception.start_from(Prior(loads, logs))
    perception.resume(rows, theta, era=era, total=total, fitted=fitted)
    perception.drift.above, perception.drift.below = map(float, drift)
    perception.drift.above_since, perception.drift.below_since = above_since, below_since


def _table_arrays(perception: TablePerception) -> dict[str, np.ndarray]:
    levels = sorted(perception.tables)
    tables = [perception.tables[level] for level in levels]
    arrays = {
        "levels": np.array(levels, dtype=np.int64),
        "windows": np.array([table.windows for table in tables], dtype=np.int64),
        "samples": perception.estimator.samples(),
        "q0": np.array([perception.q0]),
    }
    kinds = {"q": np.float64, "cost": np.float64, "evidence": np.float64, "visits": np.int64}
    for name, kind in kinds.items():
        rows = np.array([getattr(table, name) for table in tables], dtype=kind)
        arrays[name] = rows.reshape(len(tables), perception.space.size)
    return arrays | {f"weight_{i}": array for i, array in enumerate(perception.estimator.weights)}


def _fill_table(
    folder: Path, arrays: StoredArrays, perception: TablePerception, first_level: int | None
) -> None:
    """Check and take over what was saved; ``perception`` is modified in place."""
    size, estimator = perception.space.size, perception.estimator
    perception.tables = _tables(folder, arrays, size)
    perception.q0 = float(arrays.take("q0", (1,))[0])
    shapes = layer_shapes(estimator.inputs, perception.parameters.estimator.hidden)
    weights = [arrays.take(f"weight_{i}", shape) for i, shape in enumerate(shapes)]
    samples = arrays.take("samples", (None, 3))
    finite = all(np.isfinite(array).all() for array in (*weights, samples))
    inside = (samples[:, 1] >= 0) & (samples[:, 1] < size) & (samples[:, 2] >= 0)
    if not (finite and np.isfinite(perception.q0) and inside.all()):
        raise damaged(folder, "its estimator has values out of range")
    estimator.restore(tuple(weights), samples, first_level)


def _tables(folder: Path, arrays: StoredArrays, size: int) -> dict[int, LevelTable]:
    """Read and check the tables of a saved policy."""
    levels = arrays.take("levels", (None,), "i")
    count = len(levels)
    windows = arrays.take("windows", (count,), "i")
    q, cost, evidence = (arrays.take(name, (count, size)) for name in ("q", "cost", "evidence"))
    visits = arrays.take("visits", (count, size), "i")
    known = evidence > 0
    sound = (
        len(set(levels.tolist())) == count
        and np.isfinite(q).all()
        and np.isfinite(cost[known]).all()
        and np.isnan(cost[~known]).all()
        and (evidence >= 0).all()
        and (cost[known] >= 0).all()
        and (visits >= 0).all()
        and (windows >= 0).all()
    )
    if not sound:
        raise damaged(folder, "its tables have values out of range")
    return {
        int(level): LevelTable(
            q=q[i].copy(),
            cost=cost[i].copy(),
            evidence=evidence[i].copy(),
            visits=visits[i].astype(np.int64),
            windows=int(windows[i]),
        )
        for i, level in enumerate(levels)
    }
