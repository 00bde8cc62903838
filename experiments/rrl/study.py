"""What RRL's comparisons share: the cases, their trials under every agent and seed, the relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Row, row
from tuner.laboratory.metrics import Figures, figures_of
from tuner.laboratory.trial import Trial, TrialSpec, run_trial, serving, stage_environment
from tuner.report.series import Series

__all__ = [
    "AGENTS",
    "CPU",
    "DYNAMIC_WINDOWS",
    "GPU",
    "MEAN",
    "NAMES",
    "TIMES_FEWER",
    "WIKI_WINDOWS",
    "Case",
    "agent_rows",
    "fewer_rows",
    "named",
    "of_agent",
    "relation_rows",
    "run_cases",
    "times_fewer",
]

CPU, GPU = "tuner/TFServingCPU-v0", "tuner/TFServingGPU-v0"
AGENTS = ("rrl", "capes", "deeprm")
"""RRL first: the others are measured against it."""
NAMES = {"rrl": "RRL", "capes": "CAPES", "deeprm": "DeepRM"}
TIMES_FEWER = 8.0
"""How many times fewer windows than CAPES and DeepRM RRL needs, as published and asked for."""
DYNAMIC_WINDOWS = 3000
"""The authors' schedule has 3,000 iterations."""
WIKI_WINDOWS = 2000
"""The paper shows about 2,000 minutes; a window of 1,000 requests at 14 requests/s is 71 s."""
QUICK_WINDOWS = 40
MEAN = {"slo": "mean=550ms"}
"""Arguments of the environments where the objective is the least mean latency."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One panel of a figure: a served model under a load."""

    name: str
    env: str
    model: str
    workload: str
    windows: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further ones of the environment, such as the SLO."""

    def spec(self, agent: str, seed: int, *, quick: bool) -> TrialSpec:
        """Return the trial of an agent; short ones do without exact costs, whose tables take seconds."""
        return TrialSpec(
            env=self.env,
            arguments={"model": self.model, **self.arguments},
            workload=self.workload,
            agent=agent,
            seed=seed,
            windows=QUICK_WINDOWS if quick else self.windows,
            exact=not quick,
        )


def run_cases(
    cases: Sequence[Case], options: Options, agents: Sequence[str] = AGENTS
) -> dict[str, list[Trial]]:
    """Run every case under every agent and seed; the same seed gives all agents the same load.

    Returns:
        The trials of each case, by its name.
    """
    if not options.quick:
        _prepare(cases, options)
    keys = [(case, agent, seed) for seed in range(options.seeds) for case in cases for agent in agents]
    specs = [case.spec(agent, seed, quick=options.quick) for case, agent, seed in keys]
    trials = options.run_all(run_trial, specs, "models, loads, agents and seeds")
    found: dict[str, list[Trial]] = {case.name: [] for case in cases}
    for (case, _, _), trial in zip(keys, trials, strict=True):
        found[case.name].append(trial)
    return found


def named(series: Sequence[Series]) -> list[Series]:
    """Return curves under the agents' proper names."""
    return [one.model_copy(update={"name": NAMES.get(one.name, one.name)}) for one in series]


def _prepare(cases: Sequence[Case], options: Options) -> None:
    """Compute the tables of exact costs, each once, before many processes want the same ones."""
    tasks: list[tuple[TrialSpec, float]] = []
    for case in cases:
        spec = case.spec("random", 0, quick=False)
        tasks += [(spec, rate) for rate in _rates(spec, options.seeds)]
    options.run_all(compute_costs, tasks, "exact costs of every configuration")


def _rates(spec: TrialSpec, seeds: int) -> list[float]:
    """The loads that a case will meet, requests/s, as they are rounded for the tables."""
    from tuner.envs.batched_env import BatchedEnv
    from tuner.envs.exact_costs import rounded_rate
    from tuner.workload import workload

    env = stage_environment(spec)
    world = serving(env)
    assert isinstance(world, BatchedEnv), world
    nominal = world.workload.rate
    env.close()
    assert spec.workload is not None, spec
    load = workload(spec.workload, nominal)
    drawn = [load.rates(spec.windows, np.random.default_rng(seed)) for seed in range(seeds)]
    return sorted({rounded_rate(float(rate)) for rate in np.concatenate(drawn)})


def compute_costs(task: tuple[TrialSpec, float]) -> None:
    """Compute one table, which the cache folder keeps."""
    spec, rate = task
    env = stage_environment(spec)
    serving(env).expected_costs(rate)
    env.close()


def of_agent(trials: Sequence[Trial], agent: str) -> list[Figures]:
    """Return the figures of one agent's trials, by seed."""
    found = [trial for trial in trials if trial.spec.label == agent]
    return [figures_of(trial) for trial in sorted(found, key=lambda trial: trial.spec.seed)]


def relation_rows(
    case: str,
    trials: Sequence[Trial],
    value: Callable[[Figures], float],
    what: str,
    published: Mapping[str, float | None],
    *,
    note: str = "",
) -> list[Row]:
    """Return by how many per cent RRL lies below each rival, seed by seed under the same load.

    Args:
        case: Its name.
        trials: Of the case.
        value: What is compared.
        what: What it is called, such as "mean latency".
        published: The paper's per cent, by rival.
        note: For every row.
    """
    ours = of_agent(trials, AGENTS[0])
    rows = []
    for rival, paper in published.items():
        theirs = of_agent(trials, rival)
        saved = [
            100.0 * (1.0 - value(mine) / value(other)) if value(other) > 0 else float("nan")
            for mine, other in zip(ours, theirs, strict=True)
        ]
        known = [number for number in saved if np.isfinite(number)]
        name = f"{case}: {what} of RRL below {NAMES.get(rival, rival)}"
        if known:
            rows.append(row(name, known, unit="%", published=paper, note=note))
        else:
            rows.append(
                Row(id=name, published=paper, measured=None, unit="%", note=f"{note}; the rival had none")
            )
    return rows


def agent_rows(
    case: str, trials: Sequence[Trial], values: Mapping[str, tuple[Callable[[Figures], float], str]]
) -> list[Row]:
    """Return figures of each agent: median and spread over seeds.

    Args:
        case: Its name.
        trials: Of the case.
        values: What is told, by what it is called; with its unit.
    """
    agents = dict.fromkeys(trial.spec.label for trial in trials)
    rows = []
    for what, (value, unit) in values.items():
        for agent in agents:
            numbers = [value(figures) for figures in of_agent(trials, agent)]
            if not all(np.isnan(numbers)):
                rows.append(row(f"{case}, {NAMES.get(agent, agent)}: {what}", numbers, unit=unit))
    return rows


def fewer_rows(case: str, rows: Sequence[Row], what: str, windows: int, least: float) -> list[Row]:
    """Return how many times fewer windows RRL needs than each rival.

    Args:
        case: Its name.
        rows: Those of :func:`agent_rows`, which tell the windows of each agent.
        what: What these are called, such as "windows to converge".
        windows: The length of a trial.
        least: What is asked for.

    Returns:
        None where the windows are not known, as in trials without exact costs.
    """
    medians = {row.id: row.measured for row in rows}
    names = {NAMES[agent]: f"{case}, {NAMES[agent]}: {what}" for agent in AGENTS}
    if not medians.keys() >= set(names.values()):
        return []
    ours, *rivals = names
    return [
        times_fewer(
            f"{case}: times fewer {what} than {rival}", medians[names[rival]], medians[names[ours]],
            windows=windows, least=least,
        )
        for rival in rivals
    ]  # fmt: skip


def times_fewer(
    name: str, slow: float | None, fast: float | None, *, windows: float, least: float | None = None
) -> Row:
    """Return the ratio of two medians, and whether it is what was asked for.

    Args:
        name: Of the row.
        slow: Windows that the slower one needs, the median of its seeds; None if half of them or more never
            got there, which counts as the whole trial.
        fast: Windows that the faster one needs; None if half of its seeds or more never got there, which
            leaves no ratio.
        windows: The length of the slower one's trial.
        least: What is asked for.
    """
    notes = ["ratio of the medians"]
    ratio = None
    if fast is None:
        notes = ["half of the faster one's seeds or more never get there"]
    elif slow is None:
        notes = [f"at least: half of the slower one's seeds or more never get there in {windows:,g} windows"]
        ratio = windows / max(fast, 1.0)
    else:
        ratio = slow / max(fast, 1.0)
    if least is not None:
        met = ratio is not None and ratio >= least
        notes.append(f"at least {least:g} asked for: {'reached' if met else 'missed'}")
    measured = None if ratio is None else round(ratio, 6)
    return Row(id=name, published=least, measured=measured, note="; ".join(notes))
