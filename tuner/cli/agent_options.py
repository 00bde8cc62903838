"""Options of the commands that train and compare agents: where, and which agents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.signature import Fields, typer_option
from tuner.objective import Objective
from tuner.option import options_of
from tuner.plugin import AGENTS, added
from tuner.setting import Setting, parse_grids, parse_window

if TYPE_CHECKING:
    from tuner.laboratory.agent_run import RunSpec

__all__ = [
    "AGENT_HELP",
    "AgentOptions",
    "check_agent",
    "parse_agent",
    "parse_agents",
    "run_spec",
    "skipped_text",
]

MOST_REQUESTS = 10_000_000.0
"""Highest nominal rate of a cluster; the environments of single servers have lower bounds."""
COMMA = re.compile(r",(?![^\[]*\])")
"""A comma that is not within brackets."""
OWN_AGENTS = (
    "rrl, rrl_paper, rrl_code, q_learning, capes, capes_level, deeprm, random, hill_climb, tpe, gp, "
    "safe_gp, clipper_aimd, oracle"
)
"""Named here again because the catalogue loads numpy, which takes longer than a help text may."""
AGENT_HELP = (
    "NAME, or NAME:PARAMETER=VALUE:.. such as rrl_paper:delta=2. "
    f"Names: {', '.join([OWN_AGENTS, *added(AGENTS)])}."
)


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """Where agents learn: the environment, its load, and what of its own setting is replaced."""

    env: Annotated[
        str,
        typer.Option(
            "--env",
            help="tuner/TritonCPU-v0, tuner/TFServingCPU-v0, tuner/TFServingGPU-v0 or tuner/Cluster-v0; "
            "or a simulated target, such as sim://mlp.",
        ),
    ] = "tuner/TritonCPU-v0"
    workload: Annotated[str | None, typer_option(Setting, "workload")] = None
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            min=0.1,
            max=MOST_REQUESTS,
            help="Nominal requests/s. Repeat for several loads, one after the other.",
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option("--model", help="The served model, where the environment knows several.")
    ] = None
    server: Annotated[Path | None, typer_option(Setting, "server")] = None
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", metavar="FILE.yaml", help="The cluster, as for `tuner simulate`."),
    ] = None
    given: Annotated[dict[str, Any], Fields(*options_of(Objective), "grids", "window", of=Setting)] = field(
        default_factory=dict
    )
    """Options of a setting as they were written; what was not given is the environment's own."""

    def arguments(self) -> dict[str, Any]:
        """Return the environment's arguments as plain values; what was not given is left out.

        Raises:
            InvalidInput: An unknown environment (lists those there are), an option that means nothing in it,
                a file that cannot be read, or a value that is not of its form.
        """
        from tuner.laboratory.environment import check_arguments

        named = {"model": self.model, "server": self.server, "scenario": self.scenario, **self.given}
        given = {name: value for name, value in named.items() if value is not None}
        check_arguments(self.env, given)
        if self.server is not None:
            from tuner.envs.simulator.models import load_model

            given["server"] = load_model(self.server).to_json()
        if self.scenario is not None:
            from tuner.cluster.scenario import Scenario
            from tuner.files.yaml_file import load_yaml

            given["scenario"] = load_yaml(self.scenario, Scenario).model_dump(mode="json")
        if "grids" in given:
            given["grids"] = {name: list(grid) for name, grid in parse_grids(given["grids"]).items()}
        if "window" in given:
            given["window"] = parse_window(given["window"])
        return given


def run_spec(options: AgentOptions, *, seed: int, windows: int, **others: Any) -> RunSpec:
    """Return the run that a command's options describe.

    Args:
        options: Where.
        seed: Of everything random.
        windows: For each load.
        others: Other fields of the run, such as its agent.

    Raises:
        InvalidInput: The options cannot be used.
    """
    from tuner.laboratory.agent_run import RunSpec

    return RunSpec(
        env=options.env,
        arguments=options.arguments(),
        workload=options.workload,
        rates=tuple(options.rate or ()),
        seed=seed,
        windows=windows,
        **others,
    )


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


def parse_agents(text: str, spec: RunSpec) -> list[RunSpec]:
    """Read a comma-separated list of agents, and return the run of each.

    Raises:
        InvalidInput: An agent is unknown or given twice, or cannot be made with these parameters.
    """
    from dataclasses import replace

    from tuner.errors import InvalidInput

    specs: list[RunSpec] = []
    for part in filter(None, (part.strip() for part in COMMA.split(text))):
        name, parameters = parse_agent(part, "--agents")
        one = replace(spec, agent=name, parameters=parameters)
        if any(one.label == other.label for other in specs):
            raise InvalidInput("--agents", f"{one.label} is given twice", "give it once")
        specs.append(one)
    if not specs:
        raise InvalidInput("--agents", "none is given", "write rrl,capes,deeprm")
    return specs


def check_agent(spec: RunSpec, option: str) -> None:
    """Check that a run is possible, before much is done.

    Args:
        spec: The run.
        option: Where the user named its agent.

    Raises:
        InvalidInput: An unknown agent, environment or workload, or a bad value.
    """
    from tuner.errors import InvalidInput
    from tuner.laboratory.agent_run import check_run

    try:
        check_run(spec)
    except InvalidInput as error:
        mark = "parameter "
        if not error.setting.startswith(mark):
            raise
        problem = str(error).removeprefix(mark).removeprefix(f"{spec.agent}: ")
        raise InvalidInput(f"{option} {spec.agent}", problem) from error


def skipped_text(windows: int) -> str:
    """Say that windows were left out, and why."""
    return f"{windows} windows were not learned from (not measured, not finite, or disturbed)"


def _value(text: str) -> Any:
    """A number, a truth or a text."""
    from tuner.files.json_text import parse_json

    try:
        return parse_json(text)
    except ValueError:
        return text
