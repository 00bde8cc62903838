"""What a target must be able to do for what is wanted of it; told before anything is changed."""

from __future__ import annotations

from tuner.errors import InvalidInput, ReadOnly
from tuner.objective import Slo
from tuner.profiler.attachment import Attachment, require_resource

__all__ = ["check_target", "require_knobs"]


def require_knobs(attachment: Attachment) -> None:
    """Check that there is something to tune.

    Raises:
        InvalidInput: The server has no knob that can be turned.
    """
    if attachment.space.size < 2:
        problem = f"{attachment.description.model} has no knob with more than one value"
        raise InvalidInput(
            "--knob", problem, "declare one, such as --knob parameters.threads=1,2; or use observe"
        )


def check_target(attachment: Attachment, slo: Slo, goal: str, *, apply: bool, decide: bool = True) -> None:
    """Check everything that can be wrong with a target.

    Args:
        attachment: The target.
        slo: What it must keep.
        goal: Of the objective.
        apply: Whether it is to be changed.
        decide: Whether anything is to be decided at all.

    Raises:
        InvalidInput: Nothing to tune, or the SLO's statistic or the goal's resource cannot be measured.
        ReadOnly: The server takes no changes and is to be changed.
    """
    description = attachment.description
    if decide:
        require_knobs(attachment)
        require_resource(attachment, goal)
    if apply and not description.writable:
        raise ReadOnly("; ".join(description.notes) or f"{description.target} takes no changes")
    told = attachment.indicator is not None or attachment.load is not None or description.quantiles
    if decide and slo.statistic != "mean" and not told:
        advice = "; ".join(description.notes)
        raise InvalidInput(
            "--slo",
            f"{slo.statistic} is not exported by the server",
            advice or "give --rate, so that latency is measured by requests of our own",
        )
