"""Options that say what is learned and where, shared by the commands that train and compare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import grids, window_seconds

if TYPE_CHECKING:
    from tuner.laboratory.trial import TrialSpec

__all__ = [
    "AGENT_HELP",
    "MOST_WINDOWS",
    "ChangeCost",
    "Environment",
    "MaybeGoal",
    "MaybeSlo",
    "MaybeWindow",
    "Model",
    "Rates",
    "ScenarioFile",
    "ServerFile",
    "WorkloadSpec",
    "environment_arguments",
    "parse_agent",
    "parse_agents",
    "skipped_text",
]

MOST_WINDOWS = 1_000_000
"""Of a trial, per load."""
MOST_REQUESTS = 10_000_000.0
"""Nominal requests/s of a cluster; a single server's environment has a bound of its own."""
COMMA = re.compile(r",(?![^\[]*\])")
"""One that is not within brackets."""
AGENT_HELP = (
    "NAME, or NAME:PARAMETER=VALUE:.. such as rrl_paper:delta=2. Names: rrl, rrl_paper, rrl_code, "
    "q_learning, capes, capes_level, deeprm, random, hill_climb, tpe, gp, clipper_aimd, oracle."
)

Environment = Annotated[
    str,
    typer.Option(
        "--env", help="tuner/TritonCPU-v0, tuner/TFServingCPU-v0, tuner/TFServingGPU-v0 or tuner/Cluster-v0."
    ),
]
ServerFile = Annotated[
    Path | None,
    typer.Option("--server", help="A server model from `tuner calibrate`; default: the demo's MLP."),
]
Model = Annotated[
    str | None, typer.Option("--model", help="The served model, where the environment knows several.")
]
ScenarioFile = Annotated[
    Path | None,
    typer.Option("--scenario", metavar="FILE.yaml", help="The cluster, as for `tuner simulate`."),
]
Rates = Annotated[
    list[float] | None,
    typer.Option(
        "--rate",
        min=0.1,
        max=MOST_REQUESTS,
        help="Nominal requests/s. Repeat for several loads, one after the other.",
    ),
]
WorkloadSpec = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="SPEC",
        help="How the load changes: constant, dynamic, wikipedia, azure:FILE.csv, step, ramp, burst, with "
        "parameters as in step:low=0.5,high=1.5; `tuner workload list` tells all.",
    ),
]
MaybeSlo = Annotated[
    str | None,
    typer.Option("--slo", metavar="STAT=LATENCY", help="Such as p99=1s. [default: the environment's own]"),
]
MaybeGoal = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="latency: least of the SLO's statistic; strict: a broken SLO costs more; cpu, gpu: least use "
        "while the SLO is kept. [default: the environment's own]",
    ),
]
ChangeCost = Annotated[
    float | None,
    typer.Option(
        "--change-cost", min=0.0, help="Weight of what changing the configuration costs, such as 0.5."
    ),
]
MaybeWindow = Annotated[
    str | None,
    typer.Option("--window", help="Length of a measuring window. [default: the environment's own]"),
]


def environment_arguments(
    env: str,
    *,
    server: Path | None = None,
    model: str | None = None,
    scenario: Path | None = None,
    slo: str | None = None,
    goal: str | None = None,
    knobs: list[str] | None = None,
    window: str | None = None,
    change_cost: float | None = None,
) -> dict[str, Any]:
    """Return the environment's arguments as plain values; what was not given is left out.

    Raises:
        InvalidInput: An unknown environment (lists those there are), what means nothing in it, a file that
            cannot be read, or a value that is not of its form.
    """
    from tuner.laboratory.environment import check_arguments

    given: dict[str, Any] = {
        "model": model, "slo": slo, "objective": goal, "window": window, "server": server,
        "scenario": scenario, "grids": knobs or None, "change_cost": change_cost,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    check_arguments(env, given)
    if server is not None:
        from tuner.envs.simulator.models import load_model

        given["server"] = load_model(server).to_json()
    if scenario is not None:
        from tuner.cluster.scenario import Scenario
        from tuner.yaml_file import load_yaml

        given["scenario"] = load_yaml(scenario, Scenario).model_dump(mode="json")
    if knobs:
        given["grids"] = {name: list(grid) for name, grid in grids(knobs).items()}
    if window is not None:
        given["window"] = window_seconds(window)
    return given


def parse_agent(text: str, setting: str = "--agent") -> tuple[str, dict[str, Any]]:
    """Read ``NAME`` or ``NAME:PARAMETER=VALUE:..``.

    Raises:
        InvalidInput: There is no such agent (lists those there are), or it is not of that form.
    """
    from tuner.agents.catalogue import agent_names
    from tuner.errors import InvalidInput

    name, *parts = (part.strip() for part in text.split(":"))
    if name not in (known := agent_names()):
        raise InvalidInput(setting, f"there is no agent '{name}'", f"use {', '.join(known)}")
    parameters = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise InvalidInput(
                f"{setting} {name}", f"'{part}' is not PARAMETER=VALUE", "write rrl_paper:delta=2"
            )
        parameters[key] = _value(value)
    return name, parameters


def parse_agents(text: str, spec: TrialSpec) -> list[TrialSpec]:
    """Read a comma-separated list of agents, and return the trial of each.

    Raises:
        InvalidInput: An agent is unknown or given twice, or cannot be made with these parameters.
    """
    from dataclasses import replace

    from tuner.errors import InvalidInput

    specs: list[TrialSpec] = []
    for part in filter(None, (part.strip() for part in COMMA.split(text))):
        name, parameters = parse_agent(part, "--agents")
        one = replace(spec, agent=name, parameters=parameters)
        if any(one.label == other.label for other in specs):
            raise InvalidInput("--agents", f"{one.label} is given twice", "give it once")
        specs.append(one)
    if not specs:
        raise InvalidInput("--agents", "none is given", "write rrl,capes,deeprm")
    return specs


def skipped_text(windows: int) -> str:
    """Say that windows taught nothing, and why that is."""
    return f"{windows} windows were not learned from (not measured, not finite, or disturbed)"


def _value(text: str) -> Any:
    """A number, a truth or a text."""
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
