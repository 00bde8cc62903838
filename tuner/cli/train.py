"""``tuner train``: learn a policy in simulation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from tuner.cli.options import Knobs, Seed, Window, grids, window_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuner.agents.rrl import RRL

__all__ = ["EXAMPLES", "train"]

EXAMPLES = """Example: [bold]tuner train --env tuner/TritonCPU-v0 --server server.json --rate 150 --rate 300
--slo p95=30ms --out policy[/bold], then [bold]tuner run TARGET --slo p95=30ms --policy policy[/bold]"""

TRITON, CLUSTER = "tuner/TritonCPU-v0", "tuner/Cluster-v0"


class Lesson(Protocol):
    """Trains an agent in an environment, one load after the other."""

    def __call__(
        self,
        *,
        rates: Sequence[float],
        windows: int,
        window: float,
        seed: int,
        progress: Callable[[], None],
    ) -> RRL:
        """Return the trained agent."""
        ...


def train(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the policy goes.")],
    env: Annotated[
        str, typer.Option("--env", help="The environment's id: tuner/TritonCPU-v0 or tuner/Cluster-v0.")
    ] = TRITON,
    server: Annotated[
        Path | None,
        typer.Option("--server", help="A server model from `tuner calibrate`; default: the demo's MLP."),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", metavar="FILE.yaml", help="The cluster, as for `tuner simulate`."),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", min=0.1, max=1e9, help="Requests/s. Repeat for several loads."),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo", metavar="STAT=LATENCY", help="Such as p99=1s. [default: p95=30ms; a cluster's own]"
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option("--objective", help="latency, cpu or gpu. [default: latency; of a cluster gpu]"),
    ] = None,
    knobs: Knobs = None,
    window: Window = "5s",
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="How many windows to learn from, per load.")
    ] = 400,
    seed: Seed = 0,
) -> None:
    """Learn a policy in the simulated server or cluster; `tuner run --policy` starts from a server's."""
    from tuner.cli.console import make_console, make_progress
    from tuner.errors import InvalidInput
    from tuner.storage import make_folder

    if env not in (TRITON, CLUSTER):
        raise InvalidInput("--env", f"'{env}' cannot be trained in", f"use {TRITON} or {CLUSTER}")
    console, seconds = make_console(), window_seconds(window)
    lesson: Lesson
    if env == CLUSTER:
        _refuse(env, {"--server": server, "--slo": slo, "--knob": knobs})
        rates, lesson = _cluster_lesson(scenario, goal or "gpu", rate)
    else:
        _refuse(env, {"--scenario": scenario})
        rates = rate or [150.0, 300.0]
        lesson = _server_lesson(server, slo or "p95=30ms", goal or "latency", knobs)
    make_folder(out, "--out")
    with make_progress(console) as progress:
        task = progress.add_task("training", total=len(rates) * windows)
        agent = lesson(
            rates=rates,
            windows=windows,
            window=seconds,
            seed=seed,
            progress=lambda: progress.advance(task),
        )
    agent.save(out)
    agent.close()
    for value in rates:
        best = _best(agent, value)
        console.print(f"{value:g} requests/s: {best}")
    print(out)


def _refuse(env: str, options: dict[str, object]) -> None:
    """Check that no option was given that means nothing in the environment."""
    from tuner.errors import InvalidInput

    for name, value in options.items():
        if value:
            raise InvalidInput(name, f"means nothing in {env}", "leave it out")


def _server_lesson(server: Path | None, slo: str, goal: str, knobs: list[str] | None) -> Lesson:
    from tuner.control.calibration import train_in_simulation
    from tuner.envs.simulator.server import ServerModel
    from tuner.objective import Objective, parse_slo

    model = ServerModel.load(server) if server is not None else ServerModel()
    objective = Objective(slo=parse_slo(slo), goal=goal, cores=model.cores)
    return partial(train_in_simulation, model, objective, grids=grids(knobs))


def _cluster_lesson(path: Path | None, goal: str, rate: list[float] | None) -> tuple[list[float], Lesson]:
    from tuner.control.calibration import train_in_cluster
    from tuner.envs.cluster import EXAMPLE
    from tuner.envs.simulator.cluster.scenario import Scenario
    from tuner.yaml_file import load_yaml

    scenario = load_yaml(path, Scenario) if path is not None else EXAMPLE
    return rate or [scenario.total_rate], partial(train_in_cluster, scenario, goal=goal)


def _best(agent: RRL, rate: float) -> str:
    from tuner.agents.agent import State
    from tuner.cli.console import configuration_text

    level = agent.levels.level(rate)
    index = agent.best(State(level=level, configuration=0))
    text = configuration_text(agent.space, agent.space.decode(index))
    return f"{text}, learned cost {agent.costs(level)[index]:.2f}"
