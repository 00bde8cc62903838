"""The ``tuner`` command: its list of commands, and what errors look like."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tuner import __version__
from tuner.cli.calibrate import calibrate
from tuner.cli.compare import compare
from tuner.cli.config import app as config
from tuner.cli.daemon import daemon
from tuner.cli.demo import demo
from tuner.cli.dispatch import dispatch
from tuner.cli.evaluate import evaluate
from tuner.cli.exit_code import ExitCode
from tuner.cli.goodput import goodput
from tuner.cli.history import explain, history
from tuner.cli.lost_output import give_up_output
from tuner.cli.observe import observe
from tuner.cli.orders import pause, pin, resume, rollback, unpin
from tuner.cli.plan import app as plan
from tuner.cli.recommend import recommend
from tuner.cli.report import report
from tuner.cli.run import run
from tuner.cli.serve import serve
from tuner.cli.simulate import simulate
from tuner.cli.sweep import sweep
from tuner.cli.train import train
from tuner.cli.usage import Stopped, UsageError, UserCommand, usage_text
from tuner.cli.workload import app as workload
from tuner.errors import TunerError, Unavailable
from tuner.plugin import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add", "app", "main"]

app = typer.Typer(
    name="tuner",
    help="Keep model servers inside their latency objective at the least cost.",
    epilog="First steps: [bold]tuner demo[/bold], then [bold]tuner observe triton://HOST:8001/MODEL[/bold]",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add(command: Callable[..., None], *, panel: str) -> None:
    """Add a command under a heading of the list; the constant ``EXAMPLES`` of its module ends its help."""
    examples = vars(sys.modules[command.__module__])["EXAMPLES"]
    app.command(cls=UserCommand, epilog=examples, rich_help_panel=panel)(command)


DAEMON, LEARN, PLAN = (
    "Keep many servers tuned",
    "Learn and compare in simulation",
    "Simulate and plan clusters",
)
"""Headings under which groups of commands stand, too."""
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Try it without a server of yours": (demo, serve),
    "Tune one running server": (observe, recommend, run, sweep, report),
    DAEMON: (daemon, history, explain, pause, resume, pin, unpin, rollback),
    "Form batches in front of several servers": (dispatch,),
    LEARN: (calibrate, train, evaluate, compare),
    PLAN: (simulate, goodput),
}
"""Heading in the list of commands -> the commands under it, in the order in which they are shown."""
for title, functions in PANELS.items():
    for function in functions:
        add(function, panel=title)
app.add_typer(config, name="config", rich_help_panel=DAEMON)
app.add_typer(workload, name="workload", rich_help_panel=LEARN)
app.add_typer(plan, name="plan", rich_help_panel=PLAN)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"servetune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep model servers inside their latency objective at the least cost."""


def main() -> None:
    """Run the command line, and end with an `ExitCode`."""
    import signal

    # SIGTERM and a terminal that is closed end like Ctrl-C, so that whatever was started is stopped and
    # whatever was changed is settled. `nohup` has SIGHUP ignored, and the daemon uses it for something else.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        code = app(standalone_mode=False, prog_name="tuner")
        sys.stdout.flush()  # here an error can still be reported
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]  # the help is the answer
        else:
            print(f"error: {usage_text(error)}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(ExitCode.UNAVAILABLE if isinstance(error, Unavailable) else ExitCode.ERROR)
    except ModuleNotFoundError as error:
        if not (sentence := missing_extra(error)):
            raise
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
    except MemoryError as error:
        print(f"error: this needs more memory than there is: {error}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
    except (KeyboardInterrupt, Stopped):
        print("stopped", file=sys.stderr)
        sys.exit(ExitCode.STOPPED)
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        give_up_output()
        sys.exit(ExitCode.NO_READER)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        give_up_output()
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
