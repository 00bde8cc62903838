"""Checks that a target can do what its settings ask for, before anything is changed."""

from __future__ import annotations

from tuner.errors import InvalidInput, ReadOnly
from tuner.objective import Slo
from tuner.profiler.attachment import Attachment, require_resource

__all__ = ["check_target", "require_knobs"]


def require_knobs(attachment: Attachment) -> None:
    """Check that there is something to tune.

    Raises:
        InvalidInput: The server has no knob with more than one value.
    """
    if attachment.space.size < 2:
        description = attachment.description
        problem = f"{description.model} has no knob with more than one value"
        # A parameter is no advice for a stateful model: the server would end the open sequences.
        advice = "; ".join(description.without_knobs) or "declare one, such as --knob parameters.threads=1,2"
        raise InvalidInput("--knob", problem, f"{advice}; or use observe")


def check_target(attachment: Attachment, slo: Slo, goal: str, *, apply: bool, decide: bool = True) -> None:
    """Check that a target can be tuned toward an SLO and a goal.

    Args:
        attachment: The target.
        slo: Its SLO.
        goal: The goal of the objective.
        apply: Whether the target is going to be changed.
        decide: False if it is only measured: then there need be nothing to tune.

    Raises:
        InvalidInput: There is nothing to tune, or what the SLO or the goal is about cannot be measured.
        ReadOnly: The target is going to be changed, and the server takes no changes.
    """
    description = attachment.description
    if decide:
        require_knobs(attachment)
        require_resource(attachment, goal)
    if apply and not description.writable:
        raise ReadOnly("; ".join(description.notes) or f"{description.target} takes no changes")
    by_server = description.quantiles and slo.statistic not in description.lacks
    timed = attachment.indicator is not None or attachment.load is not None or by_server
    if decide and slo.statistic != "mean" and not timed:
        advice = "; ".join(description.notes)
        raise InvalidInput(
            "--slo",
            f"{slo.statistic} is not exported by the server",
            advice or "give --rate, so that latency is measured by requests of our own",
        )
