"""Checks that an agent to start from was trained for what the daemon's file asks of its target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.agents.policy_file import check_grids, check_knobs, check_objective, read_manifest, read_policy
from tuner.errors import InvalidInput, StorageError
from tuner.knobs import KnobSpace
from tuner.objective import Objective
from tuner.profiler.load.in_flight import IN_FLIGHT

__all__ = ["check_settings", "check_space", "why_not_used"]


def check_settings(folder: Path, target: Mapping[str, Any]) -> None:
    """Check that a policy can be used for a target, as far as the file says what that is.

    In mode `observe` there is no agent, and so no objective or grid that it could not have.

    Args:
        folder: Where the policy is.
        target: Those of the target's other fields that are valid, by name.

    Raises:
        InvalidInput: It is for another objective or other grids, or not one of RRL.
        StorageError: It is missing or damaged.
    """
    manifest, _ = read_policy(folder)
    if target.get("mode", "observe") == "observe":
        return
    if target.keys() >= {"slo", "objective", "change_cost"}:
        goal, change_cost = target["objective"], target["change_cost"]
        check_objective(folder, manifest, Objective(slo=target["slo"], goal=goal, change_cost=change_cost))
    learned = {knob.name: tuple(knob.grid) for knob in manifest.knobs}
    wanted = target.get("knobs", {}).items()
    grids = {n: one if isinstance(one, tuple) else one.within(learned.get(n, ())) for n, one in wanted}
    check_grids(folder, manifest, grids)


def check_space(folder: Path, space: KnobSpace) -> None:
    """Check that a policy is for the knobs that a target has.

    Args:
        folder: Where the policy is.
        space: The target's knobs; that of our own requests may be left out where none are sent.

    Raises:
        InvalidInput: It is for other knobs or grids.
        StorageError: It cannot be read.
    """
    manifest = read_manifest(folder)
    knobs = [knob for knob in manifest.knobs if knob.name != IN_FLIGHT or IN_FLIGHT in space.names]
    check_knobs(folder, manifest.model_copy(update={"knobs": knobs}), space)


def why_not_used(error: InvalidInput | StorageError) -> str:
    """Say why the agent that a target has stored is not used any more, and what is done instead.

    Args:
        error: Why it cannot be loaded: it was learned with other knobs, or is damaged. What it advises is for
            who has the policy in a folder, and left out.
    """
    problem, _, advice = str(error).rpartition("; ")
    return f"{problem or advice}; a new one begins, with the stored windows that have the present knobs"
