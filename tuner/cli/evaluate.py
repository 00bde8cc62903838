"""``tuner evaluate``: run a stored policy, beside the oracle and the start configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.agent_options import AgentOptions, run_spec
from tuner.cli.options import MOST_WINDOWS, Seed
from tuner.cli.output import NO_FILES, RunFiles
from tuner.cli.signature import fields_as_options

__all__ = ["EXAMPLES", "evaluate"]

EXAMPLES = """Example: [bold]tuner evaluate policy --env tuner/TritonCPU-v0 --rate 150 --rate 300 --seeds 4
--json evaluation.json[/bold]"""


@fields_as_options
def evaluate(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A folder that `tuner train` wrote.")],
    where: AgentOptions,
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=MOST_WINDOWS, help="Windows of each seed, per load.")
    ] = 60,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How often.")] = 3,
    seed: Seed = 0,
    files: RunFiles = NO_FILES,
) -> None:
    """Run a stored policy greedily: it neither explores nor learns."""
    from dataclasses import replace

    from tuner.cli.comparison import compare_runs
    from tuner.laboratory.agent_run import knows_costs
    from tuner.laboratory.evaluation import ORACLE, POLICY, START, PolicyEvaluation
    from tuner.laboratory.evaluation import evaluate as evaluate_one

    spec = run_spec(where, seed=seed, windows=windows)
    who = (POLICY, ORACLE, START) if knows_costs(spec) else (POLICY, START)
    # One window alone shows what is wrong before much is done.
    evaluate_one(PolicyEvaluation(replace(spec, windows=1), POLICY, policy))
    tasks = [
        PolicyEvaluation(spec.seeded(seed + number), one, policy) for number in range(seeds) for one in who
    ]
    compare_runs(evaluate_one, tasks, spec, seeds=seeds, files=files)
