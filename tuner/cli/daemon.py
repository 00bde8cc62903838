"""``tuner daemon``: keep many servers inside their SLOs until stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import MOST_WINDOWS

__all__ = ["EXAMPLES", "daemon"]

EXAMPLES = """Example: [bold]tuner config example > servetune.yaml; tuner daemon servetune.yaml[/bold].
SIGHUP reads the file again; Ctrl-C and SIGTERM end in good order."""


def daemon(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See `tuner config example`.")],
    windows: Annotated[
        int,
        typer.Option(
            "--windows",
            min=0,
            max=MOST_WINDOWS,
            help="Stop after this many windows of each target; 0: never.",
        ),
    ] = 0,
    fast: Annotated[
        bool, typer.Option("--fast", help="Let simulated targets (sim://) run as fast as they can.")
    ] = False,
    log_as: Annotated[
        str, typer.Option("--log", metavar="text|json", help="Format of a message, which is one line.")
    ] = "text",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also log windows after which nothing was changed.")
    ] = False,
) -> None:
    """Keep many targets inside their SLOs, in one process: observe, recommend or apply, and record why.

    `tuner history` and `tuner explain` show the records.
    """
    from tuner.cli.lost_output import losing_output
    from tuner.errors import InvalidInput
    from tuner.interruption import ending_well

    if log_as not in ("text", "json"):
        raise InvalidInput("--log", f"'{log_as}' is unknown", "write text or json")
    with ending_well(), losing_output():
        from tuner.control.service import run_daemon

        run_daemon(file, windows=windows, fast=fast, as_json=log_as == "json", verbose=verbose)
