"""``tuner compare``: let agents learn under the same loads, and count windows until each is near the best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.agent_options import AGENT_HELP, AgentOptions, check_agent, parse_agents, run_spec
from tuner.cli.options import MOST_WINDOWS, Seed
from tuner.cli.output import NO_FILES, PlotForm, PlotFormat, RunFiles, check_figures
from tuner.cli.signature import fields_as_options

__all__ = ["EXAMPLES", "compare"]

EXAMPLES = """Example: [bold]tuner compare --agents rrl,capes,deeprm --env tuner/TFServingCPU-v0
--workload dynamic --windows 300 --seeds 4 --json comparison.json --plot .[/bold]"""


WHERE = AgentOptions(env="tuner/TFServingCPU-v0")


@fields_as_options
def compare(
    agents: Annotated[
        str, typer.Option("--agents", help=f"Comma-separated; each {AGENT_HELP}")
    ] = "rrl,q_learning,capes,deeprm",
    where: AgentOptions = WHERE,
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=MOST_WINDOWS, help="Windows of each run, per load.")
    ] = 300,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Runs of each agent.")] = 3,
    seed: Seed = 0,
    files: RunFiles = NO_FILES,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Draw the figures into this folder.")
    ] = None,
    plot_format: PlotFormat = None,
) -> None:
    """Let agents learn under the same loads; count windows until each stays near the best, and the cost."""
    from tuner.cli.comparison import compare_runs
    from tuner.laboratory.agent_run import run_agent
    from tuner.laboratory.comparison import run_specs

    base = run_spec(where, seed=seed, windows=windows)
    chosen = parse_agents(agents, base)
    for one in chosen:
        check_agent(one, "--agents")
    check_figures(plot, plot_format)
    runs = compare_runs(run_agent, run_specs(chosen, seeds), base, seeds=seeds, files=files)
    if plot is not None:
        from tuner.laboratory.figures import comparison_figures

        for path in comparison_figures(runs, plot, form=plot_format or PlotForm.PNG):
            print(path)
