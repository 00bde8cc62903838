"""Writes and reads what RRL has learned: parameters, tables, network, samples; checked on the way in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ValidationError

from tuner.agents.level_table import LevelTable
from tuner.agents.network import layer_shapes
from tuner.agents.policy_file import StoredArrays, check_knobs, damaged, read_policy, write_policy
from tuner.agents.rrl_presets import PARAMETERS
from tuner.agents.table_perception import TablePerception
from tuner.knobs import KnobSpace

__all__ = ["load_perception", "save_perception"]


def save_perception(folder: Path, perception: TablePerception) -> None:
    """Write everything a perception holds to a folder, atomically.

    Raises:
        StorageError: The folder cannot be written.
    """
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
    arrays |= {f"weight_{i}": array for i, array in enumerate(perception.estimator.weights)}
    write_policy(
        folder,
        space=perception.space,
        parameters=PARAMETERS.dump_python(perception.parameters, mode="json"),
        first_level=perception.estimator.first_level,
        arrays=arrays,
    )


def load_perception(folder: Path, space: KnobSpace, *, seed: int, synchronous: bool) -> TablePerception:
    """Read what :func:`save_perception` wrote.

    Args:
        folder: Where it was written.
        space: The knobs and grids it must be about.
        seed: Of the estimator from now on.
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
    perception = TablePerception(space, parameters, seed=seed, synchronous=synchronous)
    perception.tables = _tables(folder, arrays, space.size)
    perception.q0 = float(arrays.take("q0", (1,))[0]) if "q0" in arrays else perception.q0
    estimator = perception.estimator
    shapes = layer_shapes(estimator.inputs, parameters.estimator.hidden)
    weights = [arrays.take(f"weight_{i}", shape) for i, shape in enumerate(shapes)]
    samples = arrays.take("samples", (None, 3))
    finite = all(np.isfinite(array).all() for array in (*weights, samples))
    inside = (samples[:, 1] >= 0) & (samples[:, 1] < space.size) & (samples[:, 2] >= 0)
    if not (finite and np.isfinite(perception.q0) and inside.all()):
        raise damaged(folder, "its estimator has values out of range")
    estimator.restore(tuple(weights), samples, manifest.first_level)
    return perception


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
