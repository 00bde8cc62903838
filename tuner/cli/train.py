"""``tuner train``: learn a policy in simulation."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tuner.cli.agent_options import (
    AGENT_HELP,
    AgentOptions,
    check_agent,
    parse_agent,
    run_spec,
    skipped_text,
)
from tuner.cli.exit_code import ExitCode
from tuner.cli.options import MOST_WINDOWS, Seed
from tuner.cli.signature import Fields, fields_as_options
from tuner.objective import Objective
from tuner.option import options_of

if TYPE_CHECKING:
    from tuner.laboratory.agent_run import AgentRun, RunSpec
    from tuner.laboratory.training import Trained

__all__ = ["EXAMPLES", "train"]

EXAMPLES = """Example: [bold]tuner train --env tuner/TritonCPU-v0 --server server.json --rate 150 --rate 300
--slo p95=30ms --out policy[/bold], then [bold]tuner run TARGET --slo p95=30ms --policy policy[/bold]"""

ORDER = ("env", "server", "model", "scenario", "workload", "rate", *options_of(Objective), "grids", "window")
"""The order of the options that say where to train: a calibrated server comes first."""
TRITON, CLUSTER = "tuner/TritonCPU-v0", "tuner/Cluster-v0"
LOADS = (150.0, 300.0)
"""Nominal loads of the simulated Triton where none is given, requests/s."""


@fields_as_options
def train(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the policy goes.")],
    agent: Annotated[str | None, typer.Option("--agent", help=AGENT_HELP, show_default="rrl")] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="DIR",
            help="Start from a policy, and with its agent, rather than from nothing.",
        ),
    ] = None,
    where: Annotated[AgentOptions, Fields(*ORDER)],
    windows: Annotated[
        int,
        typer.Option("--windows", min=1, max=MOST_WINDOWS, help="How many windows to learn from, per load."),
    ] = 400,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=1,
            max=1000,
            help="Train this many times at once, with --seed and the seeds after it, each into DIR/seed-N.",
        ),
    ] = 1,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="Write TensorBoard's logs there.")
    ] = None,
) -> None:
    """Learn a policy in a simulated server or cluster; `tuner run --policy` starts from RRL's for a server.

    Policies of other agents are for `tuner recommend` and `tuner evaluate`. After an interruption the same
    command goes on with the training; it first repeats what was recorded, which takes about as long as
    before.
    """
    from dataclasses import replace

    from tuner.cli.console import make_console

    learner = _learner(agent, policy, out)
    spec = run_spec(where, seed=seed, windows=windows, **learner)
    if not spec.rates:
        spec = replace(spec, rates=_loads(spec))
    check_agent(spec, "--agent")
    trainings = _trainings(spec, seeds, out, tensorboard)
    console = make_console()
    try:
        found = _run(trainings)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from there", file=sys.stderr)
        raise typer.Exit(ExitCode.STOPPED) from None
    for training, lines in zip(trainings, found, strict=True):
        for line in lines:
            console.print(line)
        print(training.folder)


def _learner(agent: str | None, policy: Path | None, out: Path) -> dict[str, Any]:
    """Return the fields of a spec for the agent: a new one, or one that starts from a policy.

    Raises:
        InvalidInput: There is no such agent, one is named beside a policy, or the policy would be lost.
        StorageError: There is no policy, or it is damaged.
    """
    from tuner.agents.policy_file import read_manifest
    from tuner.errors import InvalidInput

    if policy is None:
        name, parameters = parse_agent(agent or "rrl")
        return {"agent": name, "parameters": parameters}
    manifest = read_manifest(policy)
    if agent is not None:
        problem = f"the policy in {policy} brings its own, '{manifest.agent}' with its parameters"
        raise InvalidInput("--agent", problem, "leave it out")
    if policy.resolve() == out.resolve():
        raise InvalidInput("--out", f"{out} is the policy to start from", "give another folder")
    return {"agent": manifest.agent, "policy": str(policy), "policy_sha256": manifest.sha256}


def _loads(spec: RunSpec) -> tuple[float, ...]:
    """The loads where none is given; none for the environment's own."""
    if spec.env == TRITON:
        return LOADS
    if spec.env == CLUSTER:
        from tuner.cluster.scenario import Scenario
        from tuner.envs.cluster import EXAMPLE

        given = spec.arguments.get("scenario")
        return ((EXAMPLE if given is None else Scenario.model_validate(given)).total_rate,)
    return ()


class Training(NamedTuple):
    """One training."""

    spec: RunSpec
    folder: Path
    tensorboard: Path | None


def _trainings(spec: RunSpec, seeds: int, out: Path, tensorboard: Path | None) -> list[Training]:
    """Return the training of each seed, and make its folders; TensorBoard shows each folder as a run."""
    from tuner.files.storage import make_folder

    return [
        Training(
            spec.seeded(number),
            make_folder(out if seeds == 1 else out / f"seed-{number}", "--out"),
            None if tensorboard is None else make_folder(tensorboard / f"seed-{number}", "--tensorboard"),
        )
        for number in range(spec.seed, spec.seed + seeds)
    ]


def _run(trainings: list[Training]) -> list[list[str]]:
    """Train, one after the other with a bar of windows, or several at once with a bar of trainings."""
    from tuner.cli.console import make_console, progress_bars
    from tuner.laboratory.parallel import run_all
    from tuner.laboratory.training import train as train_one

    bars = progress_bars(make_console())
    if len(trainings) > 1:
        return run_all(train_quietly, trainings, "trainings", bars=bars)
    spec, folder, tensorboard = trainings[0]
    with bars("training", len(spec.stages) * spec.windows) as advance:
        trained = train_one(spec, folder, tensorboard=tensorboard, progress=advance)
    return [_summary(trained)]


def train_quietly(training: Training) -> list[str]:
    """Train in a process of its own."""
    from tuner.laboratory.training import train as train_one

    return _summary(train_one(training.spec, training.folder, tensorboard=training.tensorboard))


def _summary(trained: Trained) -> list[str]:
    """Say what was learned: the best configuration for each load, and how many windows were left out."""
    from tuner.agents.agent import State, costs_at
    from tuner.agents.load_levels import LoadLevels
    from tuner.cli.console import configuration_text

    agent, run, space, repeated = trained
    levels, start = LoadLevels(), int(space.encode(space.default))
    lines = [f"went on after {repeated} windows"] if repeated else []
    met: list[tuple[int, float | None]] = [(level, None) for level in sorted(set(run.level.tolist()))]
    given = [(_level(run, stage, rate), rate) for stage, rate in enumerate(run.spec.rates)]
    for level, rate in given or met:
        state = State(level=level, configuration=start, rate=rate)
        index = agent.best(state)
        shown = round(levels.rate(level), 1) if rate is None else rate
        cost = _cost_text(costs_at(agent, state)[index], elsewhere=bool(run.learned.any()))
        lines.append(f"{shown:g} requests/s: {configuration_text(space, space.decode(index))}, {cost}")
    if run.skipped:
        lines.append(skipped_text(run.skipped))
    agent.close()
    return lines


def _level(run: AgentRun, stage: int, rate: float) -> int:
    """Return the level under which a stage's windows at its nominal load were learned; without any, its own.

    What is measured wavers, so that windows of a load near the border of two levels may be of either.
    """
    from tuner.agents.load_levels import LoadLevels

    levels = LoadLevels()
    own = levels.level(rate)
    windows = slice(stage * run.spec.windows, (stage + 1) * run.spec.windows)
    columns = (run.level[windows], run.rate[windows], run.learned[windows])
    learned = Counter(
        level
        for level, offered, teaches in zip(*(column.tolist() for column in columns), strict=True)
        if teaches and levels.level(offered, own) == own
    )
    return learned.most_common(1)[0][0] if learned else own


def _cost_text(cost: float, *, elsewhere: bool) -> str:
    """Say what was learned of a configuration's cost, or why nothing was: anything was, under other loads."""
    if not math.isnan(cost):
        return f"learned cost {cost:.2f}"
    return "its cost was learned under other loads only" if elsewhere else "nothing was learned"
