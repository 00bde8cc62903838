"""``tuner train``: learn a policy in simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Goal, Knobs, Seed, SloText, Window, grids, window_seconds

if TYPE_CHECKING:
    from tuner.agents.rrl import RRL

__all__ = ["EXAMPLES", "train"]

EXAMPLES = """Example: [bold]tuner train --env tuner/TritonCPU-v0 --server server.json --rate 150 --rate 300
--slo p95=30ms --out policy[/bold], then [bold]tuner run TARGET --slo p95=30ms --policy policy[/bold]"""


def train(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the policy goes.")],
    env: Annotated[str, typer.Option("--env", help="The environment's id.")] = "tuner/TritonCPU-v0",
    server: Annotated[
        Path | None,
        typer.Option("--server", help="A server model from `tuner calibrate`; default: the demo's MLP."),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", min=0.1, max=100_000, help="Requests/s. Repeat for several loads."),
    ] = None,
    slo: SloText = "p95=30ms",
    goal: Goal = "latency",
    knobs: Knobs = None,
    window: Window = "5s",
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="How many windows to learn from, per load.")
    ] = 400,
    seed: Seed = 0,
) -> None:
    """Learn a policy in the simulated server; `tuner run --policy` starts from it."""
    from tuner.cli.console import make_console, make_progress
    from tuner.control.calibration import train_in_simulation
    from tuner.envs.simulator.server import ServerModel
    from tuner.errors import InvalidInput
    from tuner.objective import Objective, parse_slo
    from tuner.storage import make_folder

    if env != "tuner/TritonCPU-v0":
        raise InvalidInput("--env", f"'{env}' cannot be trained in", "use tuner/TritonCPU-v0")
    model = ServerModel.load(server) if server is not None else ServerModel()
    objective = Objective(slo=parse_slo(slo), goal=goal, cores=model.cores)
    seconds, wanted = window_seconds(window), grids(knobs)
    make_folder(out, "--out")
    rates = rate or [150.0, 300.0]
    console = make_console()
    with make_progress(console) as progress:
        task = progress.add_task("training", total=len(rates) * windows)
        agent = train_in_simulation(
            model,
            objective,
            rates=rates,
            windows=windows,
            window=seconds,
            grids=wanted,
            seed=seed,
            progress=lambda: progress.advance(task),
        )
    agent.save(out)
    agent.close()
    for value in rates:
        best = _best(agent, value)
        console.print(f"{value:g} requests/s: {best}")
    print(out)


def _best(agent: RRL, rate: float) -> str:
    from tuner.agents.agent import State
    from tuner.cli.console import configuration_text

    level = agent.levels.level(rate)
    index = agent.best(State(level=level, configuration=0))
    text = configuration_text(agent.space, agent.space.decode(index))
    return f"{text}, learned cost {agent.costs(level)[index]:.2f}"
