"""``tuner observe``: watch a server without changing anything."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tuner.cli.options import MOST_WINDOWS, Target
from tuner.setting import parse_window

__all__ = ["EXAMPLES", "observe"]

EXAMPLES = """Example:
[bold]tuner observe 'triton://127.0.0.1:8001/resnet50?metrics=8002' --every 1s[/bold]"""


def observe(
    target: Target,
    every: Annotated[str, typer.Option("--every", help="One line per interval.")] = "1s",
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", min=0, max=MOST_WINDOWS, help="Stop after this many windows; 0: never."
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Watch load, latency, batches and CPU of a server. Changes nothing, sends no requests."""
    from itertools import islice

    from tuner.cli.console import configuration_text, make_console, measurement_text, plain, print_notes
    from tuner.profiler.attachment import attach

    console = make_console()
    interval = parse_window(every, "--every")
    with attach(target) as attachment:
        if not as_json:
            described = attachment.description
            console.print(plain(f"{described.model} on {described.server} {described.version}"))
            print_notes(console, described.notes)
            running = configuration_text(attachment.space, attachment.backend.current())
            console.print(f"running: {running or 'no knob that can be read or turned'}")
        windows = attachment.profiler.watch(interval)
        for measurement in islice(windows, count) if count else windows:
            if as_json:
                # `tuner plan instances --profiles` reads this and knows knobs by their roles alone.
                print(json.dumps({**measurement.to_json(), "roles": attachment.space.roles}), flush=True)
            else:
                console.print(measurement_text(measurement))
        profile = attachment.backend.profile()
        if profile is not None and not as_json:
            console.print(
                f"l(b) = {profile.alpha * 1e3:.3f} ms · b + {profile.beta * 1e3:.3f} ms "
                f"(residual {profile.residual * 1e3:.3f} ms, batches up to {profile.largest})"
            )
