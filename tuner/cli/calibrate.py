"""``tuner calibrate``: measure a server model for the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Arrival, Knobs, Rate, Target, grids, window_seconds

if TYPE_CHECKING:
    from tuner.envs.simulator.server import ServerModel
    from tuner.measurement import Measurement
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "calibrate", "measure_server_model"]

EXAMPLES = """Example: [bold]tuner calibrate triton://127.0.0.1:8001/resnet50 --rate 200
--out resnet50.json[/bold]"""


def calibrate(
    target: Target,
    rate: Rate = None,
    arrival: Arrival = None,
    knobs: Knobs = None,
    seconds: Annotated[str, typer.Option("--seconds", help="Length of each of the few windows.")] = "5s",
    out: Annotated[Path, typer.Option("--out", help="Where the server model goes.")] = Path("server.json"),
) -> None:
    """Measure a server in a few configurations and write a model of it for the simulator.

    The file is for `tuner train --server FILE` and `sim://MODEL?server=FILE`. Puts back what ran before.
    """
    from tuner.cli.console import make_console
    from tuner.profiler.attachment import attach
    from tuner.storage import make_folder

    window = window_seconds(seconds)
    make_folder(out.absolute().parent, "--out")
    with attach(target, grids=grids(knobs), rate=rate, arrival=arrival) as attachment:
        model, _ = measure_server_model(attachment, window)
        model.save(out)
        make_console().print(model)
        print(out)


def measure_server_model(attachment: Attachment, window: float) -> tuple[ServerModel, list[Measurement]]:
    """Measure the configurations that show most about a server, and fit a model of it.

    Returns:
        The model, and the windows it was fitted to.
    """
    from tuner.control.sweep import measure_configurations
    from tuner.envs.simulator.server import calibrate as fit
    from tuner.measurement import Measurement

    space = attachment.space
    present = space.nearest(attachment.backend.current())
    telling = [
        present,
        space.nearest(present.replace(max_batch_size=8, max_queue_delay=0.0, instances=1)),
        space.nearest(present.replace(max_batch_size=16, max_queue_delay=0.02, instances=1)),
        space.nearest(present.replace(max_batch_size=16, max_queue_delay=0.005, instances=2)),
    ]
    measured = measure_configurations(
        attachment.backend,
        attachment.profiler,
        list(dict.fromkeys(telling)),
        seconds=window,
        restore=attachment.restore,
    )
    windows = [m for _, m in measured if isinstance(m, Measurement)]
    return fit(windows, cores=attachment.host.cores), windows
