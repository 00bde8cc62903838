"""``tuner demo``: tune a real server from nothing, in a few minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ForeignLimit, Goal, Seed
from tuner.cli.servers import NAMES, ServerName, start_server
from tuner.cli.signature import fields_as_options
from tuner.cli.usage import check_alone
from tuner.laboratory.capacity import FIRST_RATE, find_capacity
from tuner.objective import Objective, parse_slo
from tuner.setting import Load, Setting

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.agents.rrl import RRL
    from tuner.cli.session import TuningSession
    from tuner.measurement import Measurement
    from tuner.profiler.attachment import Attachment

__all__ = ["EXAMPLES", "demo"]

EXAMPLES = """Examples: [bold]tuner demo[/bold] · [bold]tuner demo --objective cpu --slo p95=40ms[/bold]
· [bold]tuner demo --server tfserving[/bold] · [bold]tuner demo --simulated[/bold]
· [bold]tuner demo --dispatch[/bold]"""

GRIDS: dict[str, tuple[float, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32),
    "delay": (0.0, 0.002, 0.005, 0.01),
    "parallelism": (1, 2),
}
"""Role -> the grid of the knob that has it, where the server has one. Small, so that the demo is short."""
SHARES = (0.6, 1.3)
"""The two loads, of what the server bears with its default configuration: only the first can keep the SLO."""
SLOS = {"triton": "p95=30ms", "tfserving": "p95=60ms"}
WINDOW = 4.0
"""Length of a window, s."""
CALIBRATION = 3.0
"""Length of a window in which the server is calibrated, s."""
ENDS = 2
"""Windows with the final configuration, for each load."""
TRAINING = 60
"""Simulated windows to learn from, for each load."""


@dataclass(frozen=True, kw_only=True)
class DemoCourse:
    """The model, whether its server is real, and what the demo does with it."""

    simulated: Annotated[
        bool, typer.Option("--simulated", help="A simulated server instead of a real one.")
    ] = False
    rates: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--rates",
            help="The two loads, requests/s.",
            show_default="0.6 and 1.3 of what the server bears with its default configuration",
        ),
    ] = None
    windows: Annotated[int, typer.Option("--windows", min=2, max=100, help="Tuning windows per load.")] = 14
    model: Annotated[str, typer.Option("--model", help="mlp or cnn.")] = "mlp"
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--cold",
            help="First learn in a simulation fitted to the server; or use the neural estimator alone.",
        ),
    ] = False
    dispatched: Annotated[
        bool,
        typer.Option("--dispatch", help="Two Tritons, and a dispatcher in front of them; nothing is tuned."),
    ] = False

    def __post_init__(self) -> None:
        if self.rates is not None and not all(0.1 <= rate <= 5000 for rate in self.rates):
            from tuner.errors import InvalidInput

            problem = f"{self.rates[0]:g} {self.rates[1]:g}: not between 0.1 and 5000"
            raise InvalidInput("--rates", problem, "write --rates 140 350")


@fields_as_options
def demo(
    ctx: typer.Context,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo",
            metavar="STAT=LATENCY",
            help="Such as p95=30ms, p99=1s, mean=5ms.",
            show_default="p95=30ms; TensorFlow Serving 60ms",
        ),
    ] = None,
    goal: Goal = "latency",
    *,
    course: DemoCourse,
    server: ServerName = "triton",
    foreign_limit: ForeignLimit = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="runs/TIME", help="Where the report goes."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Start a server, load it, tune it with RRL, change the load half way, and show before and after.

    Takes about four minutes. The server is started for the demo and stopped at its end. The loads are found
    on this machine: 0.6 and 1.3 of what the server bears with its default configuration.
    """
    from tuner.cli.console import make_console
    from tuner.cli.session import new_run_folder
    from tuner.errors import InvalidInput

    if course.dispatched:
        from tuner.cli.dispatch_demo import run_dispatch_demo

        check_alone(ctx, "--dispatch", "seed")
        run_dispatch_demo(make_console(), seed)
        return
    if server not in NAMES:
        raise InvalidInput("--server", f"'{server}' is unknown", f"use one of {', '.join(NAMES)}")
    if course.simulated and server != "triton":
        raise InvalidInput("--server", "means nothing with --simulated", "leave it out")
    setting = Setting(
        objective=Objective(slo=parse_slo(slo or SLOS[server]), goal=goal),
        load=Load(rate=FIRST_RATE),
        foreign_limit=foreign_limit,
        window=WINDOW,
    )
    folder = new_run_folder(out)
    console = make_console()
    with _server("" if course.simulated else server, course.model, seed, console) as target:
        tuned = Demo(
            setting=setting,
            rates=course.rates,
            windows=course.windows,
            calibrate=course.calibrate,
            seed=seed,
            console=console,
        )
        tuned.run(target, folder)


@contextmanager
def _server(name: str, model: str, seed: int, console: Console) -> Iterator[str]:
    """Yield the target of a server that runs as long as the block; without a name it is simulated."""
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


@dataclass(frozen=True, kw_only=True)
class Demo:
    """One server, tuned under two loads."""

    setting: Setting
    rates: tuple[float, float] | None
    """The two loads, requests/s; None to find them."""
    windows: int
    """Tuning windows for each load."""
    calibrate: bool
    """Whether the agent is trained in a simulation of the server before."""
    seed: int
    console: Console

    def run(self, target: str, folder: Path) -> None:
        """Tune a target, and leave the report in a folder."""
        from tuner.cli.console import plain
        from tuner.cli.session import TuningSession
        from tuner.control import WATCHED
        from tuner.control.drive.requirement import check_target
        from tuner.profiler.attachment import attach_for

        setting = replace(self.setting, grids=_grids(target))
        with attach_for(setting, target, seed=self.seed) as attachment:
            described, slo = attachment.description, setting.objective.slo
            server = plain(f"{described.server} {described.version}")
            self.console.print(f"[bold]{plain(described.model)}[/bold] on {server}, {slo}")
            check_target(attachment, slo, setting.objective.goal, apply=True)
            attachment.profiler.measure(1.0)  # the first requests of a fresh server are slow
            rates = self.rates or self._find_rates(attachment)
            before = [self._before(attachment, rate) for rate in rates]
            agent = self._agent(attachment, rates)
            session = TuningSession.start(
                attachment,
                setting,
                lambda _: agent,
                out=folder,
                limits=replace(WATCHED, step=3.0),
                title="servetune demo",
                console=self.console,
            )
            with session:
                for rate, first in zip(rates, before, strict=True):
                    self._phase(session, rate, first)
                session.finish()
            _show(session)

    def _find_rates(self, attachment: Attachment) -> tuple[float, float]:
        """Return the two loads."""
        self.console.print("[bold]loads:[/bold] trying what the default configuration bears on this machine")
        bears = find_capacity(attachment)
        low, high = (float(f"{share * bears:.2g}") for share in SHARES)
        self.console.print(f"      it answers {bears:.0f} requests/s: loads of {low:g} and {high:g}")
        return low, high

    def _before(self, attachment: Attachment, rate: float) -> list[Measurement]:
        """Measure the server's own default configuration under a load, and let its queue run empty."""
        from tuner.cli.console import measurement_text

        attachment.set_rate(rate)
        self.console.print(f"[bold]before:[/bold] the default configuration at {rate:g} requests/s")
        attachment.clock.sleep(0.5)
        measurement = attachment.profiler.measure(self.setting.seconds)
        self.console.print(f"      {measurement_text(measurement)}")
        attachment.drain(rate / 8)
        return [measurement]

    def _agent(self, attachment: Attachment, rates: tuple[float, float]) -> RRL:
        """Return an agent; trained in simulation, if wanted and the machine is quiet enough to calibrate."""
        from tuner.agents.rrl import RRL
        from tuner.cli.console import plain
        from tuner.errors import InvalidInput

        if self.calibrate:
            try:
                return self._trained(attachment, rates)
            except InvalidInput as error:
                self.console.print(f"[yellow]{plain(str(error))}; starting cold[/yellow]")
        objective = self.setting.objective_on(attachment.host.cores)
        return RRL(attachment.space, objective=objective, seed=self.seed)

    def _trained(self, attachment: Attachment, rates: tuple[float, float]) -> RRL:
        """Calibrate a model of the server, and train an agent on it under both loads."""
        from tuner.cli.console import make_progress
        from tuner.laboratory.calibration import measure_server_model, train_in_simulation

        self.console.print("[bold]calibrating:[/bold] a few short windows fit the simulator to this server")
        attachment.set_rate(rates[0])
        model, windows = measure_server_model(attachment, CALIBRATION)
        sizes = ", ".join(f"l({b}) {model.execution(b) * 1e3:.1f} ms" for b in (1, 4, 16))
        self.console.print(f"      {len(windows)} windows: {sizes}")
        with make_progress(self.console) as progress:
            task = progress.add_task("training in simulation", total=TRAINING * len(rates))
            return train_in_simulation(
                model,
                self.setting.objective_on(attachment.host.cores),
                rates=rates,
                windows=TRAINING,
                space=attachment.space,
                seed=self.seed,
                progress=lambda: progress.advance(task),
            )

    def _phase(self, session: TuningSession, rate: float, before: list[Measurement]) -> None:
        """Tune under one load, then measure the configuration that was found."""
        self.console.print(f"[bold]tuning at {rate:g} requests/s[/bold]")
        session.attachment.set_rate(rate)
        session.windows(self.windows, phase=f"tune at {rate:g}")
        session.driver.finish()
        settled = session.hold(ENDS, phase=f"after at {rate:g}")
        session.report.recorder.level(rate, before, settled)
        if settled and settled[-1].configuration == before[-1].configuration:
            sentence = f"At {rate:g} requests/s what ran before is the best that was found: it was left."
            session.report.recorder.note(sentence)
            session.say(sentence)


def _grids(target: str) -> dict[str, tuple[float, ...]]:
    """Return the demo's grids under the server's own knob names, which it must be asked for."""
    from contextlib import closing

    from tuner.adapters import connect

    with closing(connect(target)) as backend:
        return {knob.name: GRIDS[knob.role] for knob in backend.space.knobs if knob.role in GRIDS}


def _show(session: TuningSession) -> None:
    from tuner.cli.console import served_table

    rows = []
    for level in session.report.recorder.levels:
        rows += [(f"{level.rate:g}", "before", level.before), ("", "after", level.after)]
    session.console.print(served_table("Before and after", rows, session.attachment.space))
