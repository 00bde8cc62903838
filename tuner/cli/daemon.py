"""``tuner daemon``: keep many servers inside their SLOs until stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["EXAMPLES", "daemon"]

EXAMPLES = """Example: [bold]tuner config example > servetune.yaml; tuner daemon servetune.yaml[/bold].
SIGHUP reads the file again; Ctrl-C and SIGTERM end in good order."""


def daemon(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="See `tuner config example`.")],
    windows: Annotated[
        int, typer.Option("--windows", min=0, help="End when each target has had so many; 0 goes on.")
    ] = 0,
    fast: Annotated[
        bool, typer.Option("--fast", help="Let simulated targets (sim://) run as fast as they can.")
    ] = False,
    log_as: Annotated[
        str, typer.Option("--log", metavar="text|json", help="One line of either a message.")
    ] = "text",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also tell of windows after which nothing was changed.")
    ] = False,
) -> None:
    """Keep many targets in one process, as a file says: observe, recommend or apply, and write down why.

    What happened is told by `tuner history` and `tuner explain`.
    """
    import logging
    import signal

    from tuner.control.daemon import Daemon
    from tuner.control.log import begin_log
    from tuner.errors import InvalidInput

    if log_as not in ("text", "json"):
        raise InvalidInput("--log", f"'{log_as}' is unknown", "write text or json")
    begin_log(sys.stdout, as_json=log_as == "json")
    log = logging.getLogger("tuner.control")
    log.setLevel(logging.DEBUG if verbose else logging.INFO)

    def say(name: str, sentence: str) -> None:
        log.info("%s: %s", name or "daemon", sentence, extra={"target": name, "sentence": sentence})

    keeper = Daemon(file, windows=windows, fast=fast, say=say)
    signal.signal(signal.SIGHUP, lambda *_: keeper.reload())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: keeper.stop())
    say("", f"keeps {len(keeper.config.targets)} targets, state in {keeper.config.state}")
    keeper.run()
    say("", "stopped")
