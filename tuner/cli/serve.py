"""``tuner serve``: start the embedded Triton for trying things out."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["EXAMPLES", "serve"]

EXAMPLES = "Example: [bold]tuner serve mlp[/bold], then elsewhere [bold]tuner observe TARGET[/bold]"


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="mlp or cnn.")] = "mlp",
    quantiles: Annotated[bool, typer.Option(help="Export latency quantiles (summary_latencies).")] = True,
) -> None:
    """Start the embedded Triton server with one of the demo's models, until Ctrl-C."""
    import time

    from tuner.adapters.triton.embedded import EmbeddedTriton, ServerOptions
    from tuner.cli.console import make_console

    console = make_console()
    with console.status("starting Triton") as status:
        options = ServerOptions(summaries=quantiles)
        server = EmbeddedTriton(model, options=options, progress=status.update)
        server.start()
    try:
        console.print(f"Triton serves {model}; Ctrl-C stops it. Attach with:")
        console.print(f"  tuner observe '{server.target}'")
        while server.processes():
            time.sleep(0.5)
        console.print("[red]the server has ended[/red]")
    except KeyboardInterrupt:
        console.print("stopping")
    finally:
        server.stop()
