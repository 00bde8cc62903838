"""Saved policies: what an agent has learned, as a folder with a manifest and an archive, never half written.

``policy.json`` names the format, the knobs, the parameters and the archive with its digest; the archive is
a numpy ``.npz``. What its members declare is checked before they are unpacked, and none may hold Python
objects, which would run code. The archive is written first, under a name made of its
digest, and the manifest is renamed into place last: a crash at any point leaves the policy that was there.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.errors import InvalidInput, StorageError
from tuner.files.storage import read_file, replace_file
from tuner.knobs import Grids, KnobSpace, format_value

__all__ = [
    "MANIFEST",
    "Manifest",
    "StoredArrays",
    "check_grids",
    "check_knobs",
    "check_objective",
    "grids_of",
    "read_manifest",
    "read_policy",
    "write_policy",
]

MANIFEST = "policy.json"
LARGEST_MANIFEST = 10**6
"""Bytes; what is larger was not written by us."""
LARGEST_ARCHIVE = 2**28
"""Bytes of all arrays, both packed and unpacked."""
MOST_ARRAYS = 1000
KINDS = "fiub"
"""The kinds of numbers that arrays hold, in numpy's letters."""


class StoredKnob(BaseModel):
    """A knob as the policy was learned for it; further keys are ignored."""

    name: str
    grid: list[float]
    unit: str = ""


class Manifest(BaseModel):
    """What ``policy.json`` holds."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["servetune-rrl"] = "servetune-rrl"
    version: Literal[1] = 1
    agent: str = "rrl"
    knobs: list[StoredKnob] = Field(min_length=1)
    parameters: dict[str, Any]
    objective: str | None = None
    """What the costs that were learned are those of, in words; older policies do not say it."""
    first_level: int | None = None
    """Where older policies keep what is now the array of this name."""
    arrays: str = Field(pattern=r"^arrays-[0-9a-f]{16}\.npz$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class StoredArrays:
    """The arrays of a policy, each taken out with a check of its shape and values.

    Args:
        folder: Where they come from, for messages.
        arrays: By name.
    """

    def __init__(self, folder: Path, arrays: dict[str, np.ndarray]) -> None:
        self._folder = folder
        self._arrays = arrays

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def take(self, name: str, shape: tuple[int | None, ...], kind: str = "f") -> np.ndarray:
        """Return one array.

        Args:
            name: Its name.
            shape: What it must have; None stands for any length.
            kind: ``f`` for floats without infinities (NaN is for the caller to judge), ``i`` for integers.

        Raises:
            StorageError: It is missing, or has another shape or kind, or an infinite value.
        """
        array = self._arrays.get(name)
        if array is None:
            raise damaged(self._folder, f"array '{name}' is missing")
        fits = array.ndim == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype.kind != kind or np.isinf(array).any():
            raise damaged(self._folder, f"array '{name}' has a wrong shape, type or value")
        return array


def damaged(folder: Path, problem: str) -> StorageError:
    """Return the error for a policy that cannot be used."""
    return StorageError(f"policy {folder}: {problem}; train it again or give another folder")


def write_policy(
    folder: Path,
    *,
    space: KnobSpace,
    parameters: dict[str, Any],
    arrays: dict[str, np.ndarray],
    agent: str = "rrl",
    objective: str | None = None,
) -> None:
    """Write a policy, replacing one that is there.

    Args:
        folder: Where to write; created if it is missing.
        space: The knobs that the policy is about.
        parameters: The agent's constants, as plain values.
        arrays: What the agent learned.
        agent: The agent's name.
        objective: What the learned costs are those of, in words; None if it is not known.

    Raises:
        StorageError: The folder cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    manifest = Manifest(
        knobs=[StoredKnob(name=knob.name, grid=list(knob.grid), unit=knob.unit) for knob in space.knobs],
        agent=agent,
        parameters=parameters,
        objective=objective,
        arrays=f"arrays-{digest[:16]}.npz",
        sha256=digest,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / manifest.arrays, data)
        _synchronise(folder)  # the manifest must not come before what it names
        replace_file(folder / MANIFEST, manifest.model_dump_json(indent=2).encode())
        _synchronise(folder)
        for old in folder.glob(f"arrays-{'[0-9a-f]' * 16}.npz"):  # others are not ours
            if old.name != manifest.arrays:
                old.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"policy {folder}: cannot be written: {reason}; give another folder") from error


def _synchronise(folder: Path) -> None:
    """Wait until a folder's renames are on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_policy(folder: Path, agent: str = "rrl") -> tuple[Manifest, StoredArrays]:
    """Read a policy.

    Args:
        folder: Where it was written.
        agent: The name of the agent that must have learned it.

    Returns:
        What the policy is about, with the agent's parameters, and what it learned: arrays by name, which
        ``take`` checks as it returns them.

    Raises:
        InvalidInput: Another agent learned it.
        StorageError: It is missing, damaged, or not a policy at all.
    """
    manifest = read_manifest(folder)
    if manifest.agent != agent:
        problem = f"the policy in {folder} was learned by '{manifest.agent}', not by '{agent}'"
        fix = (
            "only policies of RRL carry over to a live server: train one with `tuner train --agent rrl`; "
            "`tuner evaluate` takes those of every agent"
            if agent == "rrl"
            else f"it is for '{manifest.agent}' to load"
        )
        raise InvalidInput("policy", problem, fix)
    arrays = _read_arrays(folder, manifest)
    if manifest.agent == "rrl":
        first = [] if manifest.first_level is None else [manifest.first_level]
        arrays.setdefault("first_level", np.array(first, dtype=np.int64))
    return manifest, StoredArrays(folder, arrays)


def read_manifest(folder: Path) -> Manifest:
    """Read what a policy is about, without what was learned.

    Raises:
        StorageError: It is missing, damaged, or not a policy at all.
    """
    try:
        text = read_file(folder / MANIFEST, LARGEST_MANIFEST)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"policy {folder}: {MANIFEST} cannot be read: {reason}; give a folder that `tuner train` wrote"
        ) from error
    try:
        return Manifest.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError) as error:
        raise damaged(folder, f"{MANIFEST} is not a policy of this version") from error


def _read_arrays(folder: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    try:
        data = read_file(folder / manifest.arrays, LARGEST_ARCHIVE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise damaged(folder, f"{manifest.arrays} cannot be read: {reason}") from error
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise damaged(folder, f"{manifest.arrays} is damaged")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS or sum(member.file_size for member in members) > LARGEST_ARCHIVE:
                raise damaged(folder, f"{manifest.arrays} unpacks to more than any policy has")
            return {member.filename.removesuffix(".npy"): _unpack(archive, member) for member in members}
    except StorageError:
        raise
    except Exception as error:  # zipfile, its unpackers and numpy's parser of headers have many ways to fail
        raise damaged(folder, f"{manifest.arrays} is not an archive of arrays") from error


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return one array, which must have exactly the size that its header declares.

    Raises:
        Exception: It is not an array of numbers.
    """
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_column, kind = read[version](file)
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in KINDS or not 0 <= size <= member.file_size:
            raise ValueError(f"{member.filename} is not an array of numbers")
        content = bytearray(file.read(size + 1))  # up to the end, where the checksum is compared
    if len(content) != size:
        raise ValueError(f"{member.filename} has another size than its header declares")
    return np.ndarray(shape, kind, buffer=content, order="F" if by_column else "C")


def check_knobs(folder: Path, manifest: Manifest, space: KnobSpace) -> None:
    """Check that a policy is about these knobs and grids.

    Raises:
        InvalidInput: A knob is missing, unknown, in another place, or has another grid; names all such.
    """
    names = [knob.name for knob in manifest.knobs]
    missing = {name: "was learned with, but is not there" for name in names if name not in space.names}
    _refuse(folder, _differing(manifest, {knob.name: knob.grid for knob in space.knobs}) | missing)
    if names != list(space.names):
        order = ", ".join(names)
        raise InvalidInput("knobs", f"their order differs from the policy in {folder}", f"order them {order}")


def check_grids(folder: Path, manifest: Manifest, grids: Grids) -> None:
    """Check that the grids given for some knobs are those of a policy.

    Raises:
        InvalidInput: A knob is unknown, or has another grid; names all such.
    """
    _refuse(folder, _differing(manifest, grids))


def grids_of(folder: Path) -> dict[str, tuple[float, ...]]:
    """Return the grids that a policy was learned with.

    The server's own grids may differ from them: they contain what it runs now, which changes.

    Raises:
        StorageError: There is no policy, or it is damaged.
    """
    return {knob.name: tuple(knob.grid) for knob in read_manifest(folder).knobs}


def check_objective(folder: Path, manifest: Manifest, objective: object) -> None:
    """Check that the costs in a policy are those of an objective. Two with the same text are the same.

    Raises:
        InvalidInput: They are those of another one; names both.
    """
    learned, wanted = manifest.objective, str(objective)
    if learned is not None and learned != wanted:
        # The folder, and no option: commands and the daemon's file have it under different names.
        problem = f"was learned for the {learned}, not for the {wanted}"
        fix = "train it for this objective, or give the one that it is for"
        raise InvalidInput(f"policy {folder}", problem, fix)


def _differing(manifest: Manifest, grids: Grids) -> dict[str, str]:
    """Return how grids differ from those of a policy, by the knob's name."""
    stored, found = {knob.name: knob for knob in manifest.knobs}, dict[str, str]()
    for name, grid in grids.items():
        if name not in stored:
            found[name] = f"not among what was learned: {', '.join(stored)}"
        elif (learned := tuple(stored[name].grid)) != grid:
            write = partial(format_value, unit=stored[name].unit)
            ours, theirs = (",".join(map(write, values)) for values in (grid, learned))
            found[name] = f"the grid is {ours or 'empty'} but was {theirs} in learning"
    return found


def _refuse(folder: Path, differing: Mapping[str, str]) -> None:
    """Raise InvalidInput if knobs differ from those of a policy."""
    if differing:
        (first, problem), *others = differing.items()
        problems = "; ".join([problem, *(f"knob {name}: {other}" for name, other in others)])
        fix = f"use the knobs and grids of the policy in {folder}, or train again"
        raise InvalidInput(f"knob {first}", problems, fix)
