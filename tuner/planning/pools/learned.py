"""Profiles learned from servers, which a plan uses in place of the catalogue's.

The file names, per instance type and model, either a file of observations or a profile as in a catalogue::

    {"g4dn.xlarge": {"ranker": "gpu.jsonl"},
     "r5n.large": {"ranker": {"alpha_ms": 0.3, "beta_ms": 2, "max_batch": 64}}}

Observations are what ``tuner observe TARGET --json > gpu.jsonl`` wrote, a window per line, or the result of
``tuner sweep``. A window holds l(b) and the configuration that ran, so that a plan follows the knobs: the
knob with the role *batch* limits the size of batches, and the knob with the role *parallelism* says how many
execute at once. A file from before knobs had roles does not say which knobs those are: then batches are no
larger than the largest that was measured, and one executes at a time. Of an observation the windows of the
latest configuration count. Of a sweep every configuration gives a profile, and the plan takes the one under
which the requests take the least time. Disturbed windows do not count.

The windows of a configuration are fitted together, each by its line at the batch sizes that it executed. A
window with one size of batch knows nothing of others, and its line is flat; in a file from before windows had
their batches, such windows do not count beside others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import RootModel, ValidationInfo
from pydantic import model_validator as check_model

from tuner.errors import InvalidInput, StorageError
from tuner.files.json_text import parse_json
from tuner.files.schema import file_beside
from tuner.files.storage import read_file
from tuner.knobs import Role
from tuner.planning.pools.catalogue import SHORTEST, InstanceType, Line, TypeProfile
from tuner.profile import FEW, BatchingProfile, fit_profile
from tuner.workload.sizes import LARGEST as LARGEST_REQUEST
from tuner.workload.sizes import SizeDistribution

__all__ = ["Learned", "LearnedFile", "read_observations", "with_profiles"]

LARGEST = 100_000_000
"""Bytes of observations."""
LARGEST_BATCH = 1_000_000
"""Requests of a batch; a larger one is a mistake."""


class Learned(NamedTuple):
    """A profile that was measured, and how."""

    line: Line
    largest: int
    """Items of the largest batch that was measured."""
    executions: int
    knobs: dict[str, float]
    """The server's configuration."""
    roles_known: bool
    """Whether the file says which of these limits batches and which says how many execute at once."""

    @property
    def text(self) -> str:
        """The profile in a line of text."""
        knobs = ", ".join(f"{name} {value:g}" for name, value in self.knobs.items())
        return (
            f"{self.line.alpha_ms:.4g} ms per item and {self.line.beta_ms:.4g} ms per execution, from "
            f"{self.executions:,} executions of up to {self.largest} items with {knobs or 'no knobs'}"
        )


class LearnedFile(RootModel[dict[str, dict[str, TypeProfile | str]]]):
    """Per instance type and model a profile, or the name of a file with observations beside this one."""

    @check_model(mode="after")
    def _files_are_there(self, info: ValidationInfo) -> LearnedFile:
        for models in self.root.values():
            for model, given in models.items():
                if isinstance(given, str):
                    models[model] = str(file_beside(given, info))
        return self


def with_profiles(
    types: Sequence[InstanceType], learned: LearnedFile, model: str, sizes: SizeDistribution
) -> tuple[tuple[InstanceType, ...], tuple[str, ...]]:
    """Return the types with the learned profiles of a model in place of their own, and notes about them.

    Args:
        types: Of the catalogue.
        learned: Profiles by type and model.
        model: The one to plan for.
        sizes: Of its requests; they decide which configuration of a sweep is the best.

    Raises:
        InvalidInput: A type is not in the catalogue, no profile is of the model, or observations hold none.
        StorageError: Observations cannot be read.
    """
    known = [kind.name for kind in types]
    for name in learned.root:
        if name not in known:
            raise InvalidInput(f"--profiles {name}", "is not in the catalogue", f"use {', '.join(known)}")
    there = sorted({name for models in learned.root.values() for name in models})
    if model not in there:
        others = f", but of {', '.join(there)}" if there else ""
        fix = "call it as the session does in `model`, or leave the file out"
        raise InvalidInput("--profiles", f"hold no profile of {model}{others}", fix)
    notes, changed = [], []
    for kind in types:
        given = learned.root.get(kind.name, {}).get(model)
        if isinstance(given, str):
            found = _fastest(read_observations(Path(given)), sizes)
            notes.append(f"{model} on {kind.name} was learned: {found.text}")
            notes += _caveats(f"{model} on {kind.name}", found, sizes)
            given = found.line
        if given is not None:
            kind = kind.model_copy(update={"profile": {**kind.profile, model: given}})  # noqa: PLW2901
        changed.append(kind)
    return tuple(changed), tuple(notes)


def read_observations(path: Path) -> list[Learned]:
    """Return the profiles in a file of windows: of the latest configuration, or all of a sweep.

    Raises:
        StorageError: It cannot be read.
        InvalidInput: It holds no window with a profile; says what it needs.
    """
    windows, sweep = _read_windows(path)
    if not sweep:
        windows = [one for one in windows if one["configuration"] == windows[-1]["configuration"]]
    groups: dict[tuple[tuple[str, float], ...], list[Mapping[str, Any]]] = {}
    for window in windows:
        groups.setdefault(tuple(window["configuration"].items()), []).append(window)
    found = [_learned(dict(knobs), group) for knobs, group in groups.items()]
    profiles = [one for one in found if one is not None]
    if not profiles:
        fix = "observe under load, with batches of several sizes: tuner observe TARGET --json > FILE"
        raise InvalidInput(f"--profiles {path}", "holds no undisturbed window with a profile", fix)
    return profiles


def _read_windows(path: Path) -> tuple[list[Mapping[str, Any]], bool]:
    """Read the undisturbed windows of a file; return them, and whether they are of a sweep.

    Raises:
        StorageError: The file cannot be read, or is too large.
        InvalidInput: It holds something else than windows.
    """
    try:
        text = read_file(path, LARGEST).decode()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InvalidInput(f"--profiles {path}", "is not text", _FIX) from None
    try:
        whole = parse_json(text)
    except ValueError:  # several lines, or none
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("rows"), list):
        return _windows_of_sweep(whole, path), True
    return _windows_of_lines(text, path), False


def _windows_of_sweep(sweep: Mapping[str, Any], path: Path) -> list[Mapping[str, Any]]:
    """Return the undisturbed windows of a sweep, each with the roles of its knobs."""
    roles = _roles(sweep.get("knobs"))
    windows: list[Any] = []
    for number, row in enumerate(sweep["rows"], 1):
        found = row.get("windows", []) if isinstance(row, dict) else []
        if not isinstance(found, list):
            raise InvalidInput(f"--profiles {path} row {number}", "its windows are no list", _FIX)
        windows += found
    return [{**_checked_window(one, f"{path}"), "roles": roles} for one in windows if _is_usable(one)]


def _windows_of_lines(text: str, path: Path) -> list[Mapping[str, Any]]:
    """Return the undisturbed windows of a text with one per line."""
    windows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path} line {number}"
        try:
            window = parse_json(line)
        except ValueError:
            raise InvalidInput(f"--profiles {place}", "is not JSON", _FIX) from None
        windows.append(_checked_window(window, place))
    return [window for window in windows if _is_usable(window)]


_FIX = "give what `tuner observe TARGET --json` or `tuner sweep` wrote"


def _checked_window(value: Any, place: str) -> Mapping[str, Any]:
    """Return a window after checking the fields that are used here."""
    if not (isinstance(value, dict) and isinstance(value.get("configuration"), dict) and "profile" in value):
        raise InvalidInput(f"--profiles {place}", "is no observed window", _FIX)
    if not _are_knobs(value["configuration"], value.get("roles") or {}):
        raise InvalidInput(f"--profiles {place}", "has damaged knobs", _FIX)
    profile = value["profile"]
    names = ("alpha", "beta", "largest", "executions")
    if profile is not None and not (
        isinstance(profile, dict)
        and all(isinstance(profile.get(name), int | float) and 0 <= profile[name] < 1 << 53 for name in names)
        and profile["alpha"] + profile["beta"] >= SHORTEST / 1e3
    ):
        raise InvalidInput(f"--profiles {place}", "has a damaged profile", _FIX)
    batches = value.get("batches", {})
    if not (isinstance(batches, dict) and all(_is_batch(size, count) for size, count in batches.items())):
        raise InvalidInput(f"--profiles {place}", "has damaged batches", _FIX)
    return value


def _are_knobs(values: Mapping[str, Any], roles: Any) -> bool:
    """Whether these can be the values of knobs by their names, and their roles."""
    numbers = all(isinstance(one, int | float) and abs(one) < 1 << 53 for one in values.values())
    return numbers and isinstance(roles, dict) and all(isinstance(one, str) for one in roles.values())


def _is_batch(size: str, count: Any) -> bool:
    """Whether these can be a batch size, as a key of JSON, and how often it was executed."""
    known = size.isdecimal() and len(size) <= len(str(LARGEST_BATCH)) and 1 <= int(size) <= LARGEST_BATCH
    return known and isinstance(count, int) and 0 <= count < 1 << 53


def _roles(knobs: Any) -> dict[str, str]:
    """Return the role of each knob of a sweep by its name, of knobs that say one."""
    known = knobs if isinstance(knobs, list) else []
    return {
        str(k["name"]): str(k["role"]) for k in known if isinstance(k, dict) and {"name", "role"} <= set(k)
    }


def _is_usable(window: Any) -> bool:
    """Whether a window was not disturbed, so that it may be learned from."""
    return isinstance(window, dict) and not window.get("disturbed")


def _learned(knobs: dict[str, float], windows: Sequence[Mapping[str, Any]]) -> Learned | None:
    """Return the profile of windows of one configuration; None if nothing was executed in them."""
    known = [window for window in windows if window["profile"] is not None]
    counted = all(window.get("batches") for window in known)
    profile = _common_line(known) if counted else _mean_line([window["profile"] for window in known])
    if profile is None:
        return None
    roles = windows[0].get("roles") or {}
    values = {role: knobs[name] for name, role in roles.items() if name in knobs}
    most = int(values.get(Role.BATCH, 1)) if roles else profile.largest
    line = Line(
        alpha_ms=profile.alpha * 1e3,
        beta_ms=profile.beta * 1e3,
        # 1: batching is off, and a request executes as it is sent; a limit above any request splits none.
        max_batch=most if 1 < most <= LARGEST_REQUEST else None,
        parallel=min(max(int(values.get(Role.PARALLELISM, 1)), 1), LARGEST_REQUEST),
    )
    return Learned(line, profile.largest, profile.executions, knobs, roles_known=bool(roles) or not knobs)


def _common_line(windows: Sequence[Mapping[str, Any]]) -> BatchingProfile | None:
    """Fit the batches of windows together, each as long as its own window's line says."""
    largest = max((int(size) for window in windows for size in window["batches"]), default=0)
    counts, seconds = np.zeros(largest + 1, np.int64), np.zeros(largest + 1)
    for window in windows:
        line = window["profile"]
        for size, count in ((int(size), count) for size, count in window["batches"].items()):
            if count >= FEW:  # the line does not rest on the others
                counts[size] += count
                seconds[size] += count * (line["alpha"] * size + line["beta"])
    return fit_profile(counts, seconds)


def _mean_line(profiles: Sequence[Mapping[str, Any]]) -> BatchingProfile | None:
    """Return the mean of the profiles that are not flat, if there are any, weighted by executions."""
    executed = [one for one in profiles if one["executions"] > 0]
    executed = [one for one in executed if one["alpha"] > 0] or executed
    if not executed:
        return None
    weights = [one["executions"] for one in executed]
    return BatchingProfile(
        alpha=float(np.average([one["alpha"] for one in executed], weights=weights)),
        beta=float(np.average([one["beta"] for one in executed], weights=weights)),
        largest=max(int(one["largest"]) for one in executed),
        executions=int(sum(weights)),
    )


def _fastest(found: Sequence[Learned], sizes: SizeDistribution) -> Learned:
    """Return the profile under which requests of these sizes take the least time on average."""
    items = np.arange(sizes.probability.size)
    return min(found, key=lambda one: float(one.line.latency(items) @ sizes.probability))


def _caveats(what: str, found: Learned, sizes: SizeDistribution) -> list[str]:
    """Return sentences on where a profile goes beyond what was measured."""
    largest = min(sizes.largest, found.line.max_batch or sizes.largest)
    doubts = []
    if largest > found.largest:
        doubts.append(f"{what} is extrapolated from batches of {found.largest} items to {largest}")
    if not found.roles_known:
        doubts.append(
            f"the observations of {what} do not say what its knobs do: no batch is taken to be larger than "
            "the largest one seen, and one executes at a time; observe it again"
        )
    if found.line.alpha_ms == 0:
        doubts.append(f"{what} saw one size of batch only, and takes larger ones for as fast")
    return doubts
