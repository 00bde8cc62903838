"""``tuner demo``: tune a real server from nothing, in a few minutes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ForeignLimit, Goal, Seed
from tuner.cli.servers import NAMES, ServerName, start_server

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.agents.rrl import RRL
    from tuner.cli.session import TuningSession
    from tuner.measurement import Measurement
    from tuner.objective import Slo
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "demo"]

EXAMPLES = """Examples: [bold]tuner demo[/bold] · [bold]tuner demo --objective cpu --slo p95=40ms[/bold]
· [bold]tuner demo --server tfserving[/bold] · [bold]tuner demo --simulated[/bold]"""

GRIDS: dict[str, tuple[float, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32),
    "delay": (0.0, 0.002, 0.005, 0.01),
    "parallelism": (1, 2),
}
"""Role -> the grid of the knob that has it, where the server has one. Small, so that the demo is short."""
RATES = {"triton": (140.0, 350.0), "tfserving": (80.0, 200.0)}
"""The two loads, requests/s: one that each server bears as it is, and one that it does not."""
SLOS = {"triton": "p95=30ms", "tfserving": "p95=60ms"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long each part of the demo takes, and what counts."""

    rates: tuple[float, float]
    """The two loads, requests/s."""
    window: float = 4.0
    windows: int = 14
    """Tuning windows per load."""
    ends: int = 2
    """Windows with the final configuration per load."""
    training: int = 60
    """Simulated windows per load; 0 starts cold."""
    foreign_limit: float = 0.25
    """Cores of foreign processes above which a window is not used."""


def demo(
    slo: Annotated[
        str | None,
        typer.Option("--slo", metavar="STAT=LATENCY", help="[default: p95=30ms; TensorFlow Serving 60ms]"),
    ] = None,
    goal: Goal = "latency",
    rates: Annotated[
        tuple[float, float] | None, typer.Option("--rates", help="The two loads, requests/s.")
    ] = None,
    windows: Annotated[int, typer.Option("--windows", min=2, max=100, help="Tuning windows per load.")] = 14,
    model: Annotated[str, typer.Option("--model", help="mlp or cnn.")] = "mlp",
    cold: Annotated[
        bool, typer.Option("--cold", help="Learn from nothing; no training in simulation.")
    ] = False,
    server: ServerName = "triton",
    simulated: Annotated[
        bool, typer.Option("--simulated", help="A simulated server instead of a real one.")
    ] = False,
    foreign_limit: ForeignLimit = 0.25,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="[default: runs/TIME]")] = None,
    seed: Seed = 0,
) -> None:
    """Start a server, load it, tune it with RRL, change the load half way, and show before and after.

    Takes about five minutes. The server is started for the demo and stopped at its end.
    """
    from tuner.cli.console import make_console
    from tuner.cli.session import new_run_folder
    from tuner.errors import InvalidInput
    from tuner.objective import Objective, parse_slo

    if server not in NAMES:
        raise InvalidInput("--server", f"'{server}' is unknown", f"use one of {', '.join(NAMES)}")
    server = "triton" if simulated else server
    slo_value = parse_slo(slo or SLOS[server])
    Objective(slo=slo_value, goal=goal)
    rates = rates or RATES[server]
    if not all(0.1 <= rate <= 5000 for rate in rates):
        raise InvalidInput(
            "--rates", f"{rates[0]:g} {rates[1]:g}: not between 0.1 and 5000", "write --rates 140 350"
        )
    folder = new_run_folder(out)
    training = 0 if cold else Plan.training
    plan = Plan(rates=rates, windows=windows, training=training, foreign_limit=foreign_limit)
    console = make_console()
    with _server("" if simulated else server, model, seed, console) as target:
        _tune(target, plan, slo_value, goal, folder, seed, console)


@contextmanager
def _server(name: str, model: str, seed: int, console: Console) -> Iterator[str]:
    """Yield the target of a server that lives as long as the block; without a name it is simulated."""
    if not name:
        yield f"sim://{model}?seed={seed}"
        return
    from tuner.errors import UnsupportedPlatform

    try:
        started = start_server(name, model, console)
    except UnsupportedPlatform as error:
        raise UnsupportedPlatform(f"{error}; try `tuner demo --simulated`, which needs no server") from error
    try:
        yield started.target
    finally:
        started.stop()


def _tune(target: str, plan: Plan, slo: Slo, goal: str, folder: Path, seed: int, console: Console) -> None:
    from tuner.cli.session import TuningSession
    from tuner.control import WATCHED
    from tuner.profiler.attachment import attach

    with attach(
        target, grids=_grids(target), rate=plan.rates[0], seed=seed, foreign_limit=plan.foreign_limit
    ) as attachment:
        description = attachment.description
        console.print(
            f"[bold]{description.model}[/bold] on {description.server} {description.version}, {slo}"
        )
        attachment.profiler.measure(1.0)  # the first requests of a fresh server are slow
        before = [_before(attachment, rate, plan, console) for rate in plan.rates]
        agent = _prepare_or_start_cold(attachment, plan, slo, goal, seed, console) if plan.training else None
        session = TuningSession.start(
            attachment,
            slo=slo,
            goal=goal,
            window=plan.window,
            agent=agent,
            folder=folder,
            limits=replace(WATCHED, step=3.0),
            seed=seed,
            command=" ".join(["tuner", *sys.argv[1:]]),
            title="servetune demo",
            console=console,
        )
        with session:
            for rate, first in zip(plan.rates, before, strict=True):
                _phase(session, rate, first, plan)
            session.finish()
        _show(session)


def _grids(target: str) -> dict[str, tuple[float, ...]]:
    """Return the demo's grids under the server's own knob names, which only a connection tells."""
    from contextlib import closing

    from tuner.adapters import connect

    with closing(connect(target)) as backend:
        return {knob.name: GRIDS[knob.role] for knob in backend.space.knobs if knob.role in GRIDS}


def _before(attachment: Attachment, rate: float, plan: Plan, console: Console) -> list[Measurement]:
    """Measure the server's own default configuration under a load, and let its queue run empty."""
    from tuner.cli.console import measurement_text

    attachment.set_rate(rate)
    console.print(f"[bold]before:[/bold] the default configuration at {rate:g} requests/s")
    attachment.clock.sleep(0.5)
    measurement = attachment.profiler.measure(plan.window)
    console.print(f"      {measurement_text(measurement)}")
    attachment.drain(min(plan.rates) / 4)
    return [measurement]


def _prepare_or_start_cold(
    attachment: Attachment, plan: Plan, slo: Slo, goal: str, seed: int, console: Console
) -> RRL | None:
    """Prepare if the machine is quiet enough to calibrate on it; None starts cold."""
    from tuner.errors import InvalidInput

    try:
        return _prepare(attachment, plan, slo, goal, seed, console)
    except InvalidInput as error:
        console.print(f"[yellow]{error}; starting cold[/yellow]")
        return None


def _prepare(attachment: Attachment, plan: Plan, slo: Slo, goal: str, seed: int, console: Console) -> RRL:
    """Measure a model of the server, and learn in simulation what the loads will need."""
    from tuner.cli.console import make_progress
    from tuner.laboratory.calibration import measure_server_model, train_in_simulation
    from tuner.objective import Objective

    console.print("[bold]calibrating:[/bold] a few short windows fit the simulator to this server")
    attachment.set_rate(plan.rates[0])
    model, windows = measure_server_model(attachment, 3.0)
    sizes = ", ".join(f"l({b}) {model.execution(b) * 1e3:.1f} ms" for b in (1, 4, 16))
    console.print(f"      {len(windows)} windows: {sizes}")
    objective = Objective(slo=slo, goal=goal, cores=attachment.host.cores)
    with make_progress(console) as progress:
        task = progress.add_task("training in simulation", total=plan.training * len(plan.rates))
        return train_in_simulation(
            model,
            objective,
            rates=plan.rates,
            windows=plan.training,
            space=attachment.space,
            seed=seed,
            progress=lambda: progress.advance(task),
        )


def _phase(session: TuningSession, rate: float, before: list[Measurement], plan: Plan) -> None:
    """Tune under one load, then measure what came of it."""
    session.console.print(f"[bold]tuning at {rate:g} requests/s[/bold]")
    session.attachment.set_rate(rate)
    session.windows(plan.windows, phase=f"tune at {rate:g}")
    session.driver.finish()
    settled = session.hold(plan.ends, phase=f"after at {rate:g}")
    session.recorder.level(rate, before, settled)


def _show(session: TuningSession) -> None:
    from tuner.cli.console import served_table

    rows = []
    for level in session.recorder.levels:
        rows += [(f"{level.rate:g}", "before", level.before), ("", "after", level.after)]
    session.console.print(served_table("Before and after", rows, session.attachment.space))
