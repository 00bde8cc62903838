"""The servers that the demo and `tuner serve` can start: Triton, and TensorFlow Serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.adapters.embedded.server import EmbeddedServer

__all__ = ["NAMES", "ServerName", "start_server"]

NAMES = ("triton", "tfserving")
ServerName = Annotated[
    str,
    typer.Option(
        "--server", metavar="NAME", help="triton; tfserving: TensorFlow Serving, or a stand-in for it."
    ),
]


def start_server(name: str, model: str, console: Console, *, quantiles: bool = True) -> EmbeddedServer:
    """Start a server with one of the demo's models; the caller stops it.

    Args:
        name: One of ``NAMES``.
        model: ``mlp`` or ``cnn``.
        console: Shows what takes long.
        quantiles: Whether Triton exports quantiles of the latency; TensorFlow Serving always does.

    Raises:
        InvalidInput: There is no such server or model.
        UnsupportedPlatform: It cannot run here.
        AdapterError: It does not start.
    """
    from tuner.errors import InvalidInput

    if name not in NAMES:
        raise InvalidInput("--server", f"'{name}' is unknown", f"use one of {', '.join(NAMES)}")
    with console.status("") as status:
        server: EmbeddedServer
        if name == "triton":
            from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions

            options = TritonOptions(summaries=quantiles)
            server = EmbeddedTriton(model, options=options, progress=status.update)
        else:
            from tuner.adapters.tfserving.embedded import EmbeddedTFServing

            server = EmbeddedTFServing(model, progress=status.update)
        status.update(f"starting {server.title}")
        server.start()
    return server
