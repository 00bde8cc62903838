"""``tuner serve``: start a server to try the other commands on."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.servers import ServerName, start_server

__all__ = ["EXAMPLES", "serve"]

EXAMPLES = """Examples: [bold]tuner serve mlp[/bold], then elsewhere [bold]tuner observe TARGET[/bold]
· [bold]tuner serve mlp --server tfserving[/bold]"""


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="mlp or cnn.")] = "mlp",
    server: ServerName = "triton",
    quantiles: Annotated[bool, typer.Option(help="Triton exports latency quantiles.")] = True,
) -> None:
    """Start a server with one of the demo's models, until Ctrl-C."""
    import os
    import time
    from contextlib import suppress

    from tuner.cli.console import make_console
    from tuner.errors import AdapterError, InvalidInput

    if not quantiles and server == "tfserving":
        raise InvalidInput("--no-quantiles", "means nothing with --server tfserving", "leave it out")
    console = make_console()
    started = start_server(server, model, console, quantiles=quantiles)
    try:
        console.print(f"{started.title} serves {model}; Ctrl-C stops it. Attach with:")
        console.print(f"  tuner observe '{started.target}'")
        while started.processes():
            time.sleep(0.5)
        problem = f"the embedded {started.title} has ended"
        raise AdapterError(f"{problem}; the end of its log: {started.log_tail()}")
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal, or who reads the output, may have gone, too
            os.write(1, b"stopping\n")
    finally:
        started.stop()
