"""``tuner evaluate``: how a stored policy serves, beside the oracle and the start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import Knobs, Seed
from tuner.cli.trial import (
    MOST_WINDOWS,
    ChangeCost,
    Environment,
    MaybeGoal,
    MaybeSlo,
    MaybeWindow,
    Model,
    Rates,
    ScenarioFile,
    ServerFile,
    WorkloadSpec,
    environment_arguments,
)

__all__ = ["EXAMPLES", "evaluate"]

EXAMPLES = """Example: [bold]tuner evaluate policy --env tuner/TritonCPU-v0 --rate 150 --rate 300 --seeds 4
--json evaluation.json[/bold]"""


def evaluate(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A folder that `tuner train` wrote.")],
    env: Environment = "tuner/TritonCPU-v0",
    workload: WorkloadSpec = None,
    rate: Rates = None,
    model: Model = None,
    server: ServerFile = None,
    scenario: ScenarioFile = None,
    slo: MaybeSlo = None,
    goal: MaybeGoal = None,
    change_cost: ChangeCost = None,
    knobs: Knobs = None,
    window: MaybeWindow = None,
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=MOST_WINDOWS, help="Windows of each seed, per load.")
    ] = 60,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="How often.")] = 3,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the rows there.")] = None,
) -> None:
    """Run a stored policy greedily: nothing is explored, nothing learned."""
    from dataclasses import replace

    from tuner.cli.comparison import compare_trials
    from tuner.laboratory.evaluation import ORACLE, POLICY, START, Evaluation
    from tuner.laboratory.evaluation import evaluate as evaluate_one
    from tuner.laboratory.trial import TrialSpec, knows_costs

    arguments = environment_arguments(
        env,
        server=server,
        model=model,
        scenario=scenario,
        slo=slo,
        goal=goal,
        knobs=knobs,
        window=window,
        change_cost=change_cost,
    )
    spec = TrialSpec(
        env=env,
        arguments=arguments,
        workload=workload,
        rates=tuple(rate or ()),
        seed=seed,
        windows=windows,
    )
    who = (POLICY, ORACLE, START) if knows_costs(spec) else (POLICY, START)
    evaluate_one(
        Evaluation(replace(spec, windows=1), POLICY, policy)
    )  # mistakes are told before much is done
    tasks = [Evaluation(spec.seeded(seed + number), one, policy) for number in range(seeds) for one in who]
    compare_trials(evaluate_one, tasks, spec, seeds=seeds, out=out)
