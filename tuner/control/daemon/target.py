"""Attaches to a target of the daemon's file, and checks that it can do what the file asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tuner.control.daemon.config import TargetConfig
from tuner.control.drive.requirement import check_target
from tuner.errors import InvalidInput
from tuner.knobs import Grids
from tuner.profiler.attachment import Attachment, attach_for
from tuner.profiler.load.in_flight import IN_FLIGHT
from tuner.profiler.source import Clock
from tuner.setting import Setting

__all__ = ["attached", "attached_quietly"]

FIELDS = {
    "--slo": "slo",
    "--objective": "objective",
    "--rate": "probe_rate",
    "--shape": "shapes",
    "--knob": "knobs",
    "--foreign-limit": "foreign_limit",
    "--sli-prometheus": "sli.prometheus",
    "--sli-query": "sli.query",
    "--sli-token-file": "sli.token_file",
}
"""What the file calls the options of the command line, which messages are written for."""


@contextmanager
def attached(
    config: TargetConfig, grids: Grids, *, clock: Clock | None = None
) -> Iterator[tuple[Attachment, Setting]]:
    """Attach to a target for the length of a block, with what it is tuned toward.

    Args:
        config: The target.
        grids: Of its knobs; see :meth:`TargetConfig.grids`.
        clock: For a live target; the wall clock if None.

    Raises:
        InvalidInput: What the file asks for cannot be; names the field.
        StorageError: A file that the target names cannot be read.
        AdapterError: The server does not answer, or takes no changes where it is to be changed.
    """
    with ExitStack() as opened:
        try:
            setting = config.setting(grids)
            attachment = opened.enter_context(attach_for(setting, config.url, seed=config.seed, clock=clock))
            check_target(
                attachment,
                config.slo,
                config.objective,
                apply=config.mode == "apply",
                decide=config.mode != "observe",
            )
        except InvalidInput as error:
            raise error.renamed(FIELDS) from error
        yield attachment, setting


@contextmanager
def attached_quietly(config: TargetConfig, grids: Grids) -> Iterator[Attachment]:
    """Attach to a target as :func:`attached` does, but send it no requests of our own."""
    if config.probe_rate is not None:
        given: dict[str, object] = {"probe_rate": None, "shapes": {}}
        if config.sli is None:  # our own requests are timed, so any statistic of theirs is known
            given["slo"] = replace(config.slo, statistic="mean")
        if IN_FLIGHT in grids:  # their knob, and there may be no other one to tune
            given["mode"] = "observe"
        config = config.model_copy(update=given)
        grids = {name: grid for name, grid in grids.items() if name != IN_FLIGHT}
    with attached(config, grids) as (attachment, _):
        yield attachment
