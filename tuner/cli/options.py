"""Options that several commands share, each with one name, one unit and one help text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.signature import typer_option
from tuner.option import options_of
from tuner.plugin import BACKENDS, added
from tuner.setting import Setting

__all__ = [
    "LIVE",
    "MOST_WINDOWS",
    "ForeignLimit",
    "Goal",
    "Knobs",
    "Policy",
    "Seed",
    "Target",
    "with_grids_of",
]

LIVE = [name for name in options_of(Setting) if name not in ("workload", "server")]
"""The options of a setting that mean something on a live server."""

MOST_WINDOWS = 1_000_000
"""Most windows that a command may be asked for: under each load, or of each target."""

FORMS = "triton://HOST:8001/MODEL?metrics=8002, tfserving://HOST:8500/MODEL?rest=8501, or sim://mlp."


def _target_help() -> str:
    """Say how targets are written, with the schemes that other packages have added."""
    more = ", ".join(f"{scheme}://" for scheme in added(BACKENDS))
    return f"{FORMS} Installed, too: {more}." if more else FORMS


Target = Annotated[str, typer.Argument(metavar="TARGET", help=_target_help())]
Goal = Annotated[str, typer_option(Setting, "objective")]
Knobs = Annotated[list[str] | None, typer_option(Setting, "grids")]
ForeignLimit = Annotated[float | None, typer_option(Setting, "foreign_limit")]
Policy = Annotated[
    Path | None,
    typer.Option("--policy", metavar="DIR", help="Start from a policy that `tuner train` or a run saved."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of everything random.")]


def with_grids_of(policy: Path, setting: Setting) -> Setting:
    """Return a setting with the grids that a policy was learned with; a grid that the user gives is kept.

    Raises:
        StorageError: There is no policy, or it is damaged.
    """
    from tuner.agents.policy_file import grids_of

    return replace(setting, grids={**grids_of(policy), **setting.grids})
