"""``tuner dispatch``: the central batch scheduler in front of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.exit_code import ExitCode
from tuner.cli.output import check_file
from tuner.cli.usage import check_alone

if TYPE_CHECKING:
    from tuner.dispatch.config import DispatchConfig

__all__ = ["EXAMPLES", "dispatch"]

EXAMPLES = """Example of a file:

  listen: {grpc: "127.0.0.1:9100", http: "127.0.0.1:9101"}

  sessions: [{name: mlp, slo_ms: 50, backends: ["triton://127.0.0.1:8001/mlp"]}]

Then point clients of KServe or TensorFlow Serving there.

SIGHUP reads the file again; Ctrl-C and SIGTERM end in good order."""


def dispatch(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="See docs/dispatch.md.")],
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only check the file, and the certificates and tokens that it listens with; "
            "no server is asked.",
        ),
    ] = False,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE.npz", help="Write the event log there at the end.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="CONFIG.yaml is an event log: replay it, and compare the commands."),
    ] = False,
    explained: Annotated[
        int | None,
        typer.Option(
            "--explain",
            metavar="NUMBER",
            min=0,
            help="CONFIG.yaml is an event log: say what came of a request.",
        ),
    ] = None,
) -> None:
    """Form batches centrally, by deadline, in front of stock servers, for stock clients."""
    for option, given in (("--explain", explained is not None), ("--replay", replay), ("--check", check)):
        if given:
            check_alone(ctx, option, "file")
    if explained is not None:
        _explain(file, explained)
        return
    if replay:
        _replay(file)
        return
    if check:
        _check(file)
        return
    from tuner.cli.lost_output import losing_output
    from tuner.interruption import ending_well

    check_file(log, "--log")

    def say(sentence: str) -> None:
        print(sentence, flush=True)

    with ending_well(), losing_output():
        from tuner.dispatch.process import run_dispatch

        run_dispatch(lambda: _read(file), say, log)


def _check(file: Path) -> None:
    """Say that a file has no mistakes, nor have the certificates and tokens that it listens with."""
    from tuner.dispatch.credentials import Credentials

    config = _read(file)
    Credentials(config.listen)
    names = ", ".join(session.name for session in config.sessions)
    print(f"{file}: no mistakes; dispatches {names} by {config.policy} (its servers were not asked)")


def _read(file: Path) -> DispatchConfig:
    """Return what a file says, if all that it needs is installed."""
    from tuner.dispatch.config import DispatchConfig
    from tuner.files.yaml_file import load_yaml
    from tuner.plugin import check_installed

    config = load_yaml(file, DispatchConfig)
    if config.listen.grpc_server == "native":
        check_installed("pygrpc_native", "listen.grpc_server")
    if config.tracing is not None:
        check_installed("opentelemetry.sdk", "tracing")
    return config


def _replay(file: Path) -> None:
    """Replay an event log; exit code 1 if a policy now answers otherwise."""
    from tuner.dispatch.journal import Journal

    journal = Journal.load(file)
    if not journal.size:
        print(f"{file}: no events")
        return
    differences = 0
    for number, segment in enumerate(journal.segments, 1):
        with _whole(file, number):
            found = segment.replay()
        differences += found is not None
        what = (
            "identical"
            if found is None
            else f"differs at entry {found.place}: {found.logged} != {found.given}"
        )
        print(f"segment {number} ({segment.policy}, {segment.log.size} entries): {what}")
    if differences:
        raise typer.Exit(ExitCode.DIFFERENT)


@contextmanager
def _whole(file: Path, segment: int) -> Iterator[None]:
    """Say which log and segment it is that a policy cannot run through."""
    from tuner.dispatch.journal import IMPOSSIBLE
    from tuner.errors import InvalidInput
    from tuner.printable import one_line

    try:
        yield
    except IMPOSSIBLE as error:
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "  # 'x' alone says little
        problem = f"segment {segment} cannot be replayed: {kind}{one_line(str(error), 300)}"
        hint = "it is damaged, or its policy decides otherwise here than where it was written"
        raise InvalidInput(str(file), problem, hint) from error


def _explain(file: Path, number: int) -> None:
    """Say what came of the request with a number, in every scheduler that it waited in."""
    from tuner.dispatch.journal import Journal, explain
    from tuner.errors import InvalidInput

    journal = Journal.load(file)
    found = False
    for place, segment in enumerate(journal.segments, 1):
        with _whole(file, place):
            said = explain(segment, number)
        for sentence in said:
            print(f"segment {place} ({segment.policy}) {sentence}")
            found = True
    if not found:
        last = max((segment.last_number for segment in journal.segments), default=-1)
        hint = f"its numbers are 0 to {last}" if last >= 0 else ""
        raise InvalidInput("--explain", f"the log has no request {number}", hint)
