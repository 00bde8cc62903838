"""``tuner run``: keep a live server inside its SLO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import LIVE, MOST_WINDOWS, Policy, Seed, Target, with_grids_of
from tuner.cli.signature import Fields, fields_as_options
from tuner.setting import Setting

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL
    from tuner.objective import Objective
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "run"]

EXAMPLES = """Examples: [bold]tuner run triton://127.0.0.1:8001/resnet50 --slo p95=30ms[/bold]
· [bold]tuner run sim://mlp --slo p95=30ms --rate 300 --windows 40[/bold]"""


@dataclass(frozen=True, kw_only=True)
class RunCourse:
    """The course of a run: its length, its start, what it may change, and what it leaves behind."""

    windows: Annotated[
        int,
        typer.Option("--windows", min=0, max=MOST_WINDOWS, help="Stop after this many windows; 0: never."),
    ] = 0
    policy: Policy = None
    save_policy: Annotated[
        Path | None, typer.Option("--save-policy", metavar="DIR", help="Save what was learned at the end.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where report and state go.", show_default="runs/TIME"),
    ] = None
    restore: Annotated[
        bool,
        typer.Option(
            "--restore", help="At the end restore what the server ran before, not the best that was found."
        ),
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, but change nothing.")] = (
        False
    )


@fields_as_options
def run(
    target: Target,
    setting: Annotated[Setting, Fields(*LIVE)],
    course: RunCourse,
    seed: Seed = 0,
) -> None:
    """Tune a live server toward its SLO, safely, until stopped.

    Ends with the best configuration that was seen to keep the SLO (or with the original one, --restore).
    """
    from tuner.cli.session import TuningSession, check_indicator
    from tuner.files.storage import make_folder
    from tuner.profiler.attachment import attach_for

    check_indicator(setting)
    if course.policy is not None:
        setting = with_grids_of(course.policy, setting)
    if course.save_policy is not None:
        make_folder(course.save_policy, "--save-policy")  # at the end what was learned would be lost
    with attach_for(setting, target, seed=seed) as attachment:
        session = TuningSession.start(
            attachment,
            setting,
            lambda objective: _make_agent(attachment, objective, course.policy, seed),
            out=course.out,
            apply=not course.dry_run,
        )
        session.restore, session.save_policy = course.restore, course.save_policy
        with session:
            try:
                session.windows(course.windows)
            except KeyboardInterrupt:
                session.stop()
            session.finish()


def _make_agent(attachment: Attachment, objective: Objective, policy: Path | None, seed: int) -> RRL:
    """Return an agent that starts from a policy, or from nothing if there is none."""
    from tuner.agents.rrl import RRL

    # Windows of virtual time would not wait for a thread, and be decided from what was known long before.
    at_once = attachment.simulated
    if policy is None:
        return RRL(attachment.space, objective=objective, seed=seed, synchronous=at_once)
    return RRL.load(
        policy,
        attachment.space,
        objective=objective,
        cores=attachment.cores,
        seed=seed,
        synchronous=at_once,
    )
