"""What RRL's comparisons share: cases, the runs of every agent in them, and how agents compare."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment
from tuner.experiments.frame.result import Row, row
from tuner.laboratory.agent_run import AgentRun, RunSpec, run_agent, serving, stage_environment
from tuner.laboratory.metrics import Figures, figures_of
from tuner.report.series import Series

__all__ = [
    "AGENTS",
    "CPU",
    "DYNAMIC_WINDOWS",
    "FIGURES",
    "FORMS",
    "GPU",
    "LEARNING",
    "MEAN",
    "NAMES",
    "TIMES_FEWER",
    "WIKI_WINDOWS",
    "AgentStudy",
    "AgentTask",
    "LearningCase",
    "agent_rows",
    "fewer_rows",
    "figure_rows",
    "named",
    "nominal_rate",
    "of_agent",
    "relation_rows",
    "times_fewer",
]

CPU, GPU = "tuner/TFServingCPU-v0", "tuner/TFServingGPU-v0"
FORMS = ("rrl_paper", "rrl_code")
"""RRL as the paper and as its authors' code have it."""
RIVALS = ("capes", "deeprm")
AGENTS = ("rrl", *FORMS, *RIVALS)
"""RRL first: the others are measured against it."""
NAMES = {
    "rrl": "RRL",
    "rrl_paper": "RRL of the paper",
    "rrl_code": "RRL of its code",
    "capes": "CAPES",
    "deeprm": "DeepRM",
}
FORM_SEEDS = 3
"""Seeds of these forms at most: they train a network in every window, which takes tens of milliseconds."""
TIMES_FEWER = 8.0
"""How many times fewer windows than CAPES and DeepRM RRL needs, as published and asked for."""
DYNAMIC_WINDOWS = 3000
"""The authors' schedule has 3,000 iterations."""
WIKI_WINDOWS = 2000
"""The paper shows about 2,000 minutes; a window of 1,000 requests at 14 requests/s is 71 s."""
QUICK_WINDOWS = 20
MEAN = {"slo": "mean=550ms"}
"""Arguments of the environments where the objective is the least mean latency."""
FIGURES: Mapping[str, tuple[Callable[[Figures], float], str]] = {
    "mean latency": (lambda f: 1e3 * f.mean_latency, "ms"),
    "p95": (lambda f: 1e3 * f.p95, "ms"),
    "p99": (lambda f: 1e3 * f.p99, "ms"),
    "CPU use": (lambda f: f.resource, "cores"),
    "GPU use": (lambda f: f.resource, "share"),
    "mean cost": (lambda f: f.mean_cost, "of the SLO"),
    "mean cost above the oracle's": (lambda f: 100 * f.regret, "%"),
    "windows to converge": (lambda f: f.windows_to_converge, "windows"),
    "windows not near the oracle": (lambda f: f.windows_off, "windows"),
    "windows that broke the SLO": (lambda f: 100 * f.slo_violations, "%"),
}
"""What a row shows of an agent's runs, and its unit, by the words of the row."""
LEARNING = (
    "windows to converge",
    "windows not near the oracle",
    "mean cost above the oracle's",
    "windows that broke the SLO",
)
"""How well an agent learned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningCase:
    """One panel of a figure: a served model under a load."""

    name: str
    env: str
    model: str
    workload: str
    windows: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further ones of the environment, such as the SLO."""

    def spec(self, agent: str, seed: int, *, quick: bool) -> RunSpec:
        """Return the run of an agent; short ones do without exact costs, whose tables take seconds."""
        return RunSpec(
            env=self.env,
            arguments={"model": self.model, **self.arguments},
            workload=self.workload,
            agent=agent,
            seed=seed,
            windows=QUICK_WINDOWS if quick else self.windows,
            exact=not quick,
        )


class AgentTask(NamedTuple):
    """An agent that learns a case."""

    case: str
    agent: str


class AgentStudy(Experiment[AgentTask, AgentRun]):
    """An experiment in which RRL and its rivals learn every case; a seed gives all agents the same load."""

    cases: ClassVar[tuple[LearningCase, ...]]
    agents: ClassVar[tuple[str, ...]] = AGENTS

    def prepare(self) -> None:
        """Compute the tables of exact costs, each once, before many processes want the same ones."""
        if self.options.quick:
            return
        tables: list[tuple[RunSpec, float]] = []
        for case in self.cases:
            spec = case.spec("random", 0, quick=False)
            tables += [(spec, rate) for rate in _rates(spec, self.options.seeds)]
        self.run_all(compute_costs, tables, "exact costs of every configuration")

    def tasks(self) -> list[AgentTask]:
        """Return every case under every agent."""
        return [AgentTask(case.name, agent) for case in self.cases for agent in self.agents]

    def seeds_of(self, task: AgentTask) -> Sequence[int]:
        """Return all seeds; of the forms that take long the first ones."""
        seeds = super().seeds_of(task)
        return seeds[:FORM_SEEDS] if task.agent in FORMS else seeds

    def measure(self, task: AgentTask, seed: int) -> AgentRun:
        """Let the agent learn."""
        case = {case.name: case for case in self.cases}[task.case]
        return run_agent(case.spec(task.agent, seed, quick=self.options.quick))

    def rows(self, found: Answers[AgentTask, AgentRun]) -> Iterator[Row]:
        """Return the rows of each case."""
        for case in self.cases:
            yield from self.case_rows(case, self._trials(found, case))

    def series(self, found: Answers[AgentTask, AgentRun]) -> Iterator[Series]:
        """Return the curves of each case."""
        for case in self.cases:
            yield from self.case_series(case, self._trials(found, case))

    @abstractmethod
    def case_rows(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterable[Row]:
        """Return the figures of one case, given its runs: agent by agent, seed by seed."""

    @abstractmethod
    def case_series(self, case: LearningCase, runs: Sequence[AgentRun]) -> Iterable[Series]:
        """Return the curves of one case."""

    def configuration(self) -> dict[str, Any]:
        """Return the cases and the agents."""
        return {
            "cases": [f"{case.env} {case.model} {case.workload}" for case in self.cases],
            "arguments": [dict(case.arguments) for case in self.cases],
            "windows": [case.windows for case in self.cases],
            "agents": list(self.agents),
            "seeds of the paper's and the code's form": min(FORM_SEEDS, self.options.seeds),
        }

    def _trials(self, found: Answers[AgentTask, AgentRun], case: LearningCase) -> list[AgentRun]:
        return [run for agent in self.agents for run in found[AgentTask(case.name, agent)]]


def named(series: Sequence[Series]) -> list[Series]:
    """Return curves under the agents' proper names."""
    return [one.model_copy(update={"name": NAMES.get(one.name, one.name)}) for one in series]


def nominal_rate(spec: RunSpec) -> float:
    """Return the load that the workload of a run is relative to, requests/s."""
    from tuner.envs.batched_env import BatchedEnv

    env = stage_environment(spec)
    world = serving(env)
    assert isinstance(world, BatchedEnv), world
    env.close()
    return float(world.workload.rate)


def _rates(spec: RunSpec, seeds: int) -> list[float]:
    """The loads that a case will meet, requests/s, as they are rounded for the tables."""
    from tuner.envs.exact_costs import rounded_rate
    from tuner.workload import workload

    assert spec.workload is not None, spec
    load = workload(spec.workload, nominal_rate(spec))
    drawn = [load.rates(spec.windows, np.random.default_rng(seed)) for seed in range(seeds)]
    return sorted({rounded_rate(float(rate)) for rate in np.concatenate(drawn)})


def compute_costs(task: tuple[RunSpec, float]) -> None:
    """Compute one table, which the cache folder keeps."""
    spec, rate = task
    env = stage_environment(spec)
    serving(env).expected_costs(rate)
    env.close()


def of_agent(runs: Sequence[AgentRun], agent: str) -> list[Figures]:
    """Return the figures of one agent's runs, by seed."""
    found = [run for run in runs if run.spec.label == agent]
    return [figures_of(run) for run in sorted(found, key=lambda run: run.spec.seed)]


def relation_rows(
    case: str, runs: Sequence[AgentRun], what: str, published: Mapping[str, float | None], *, note: str = ""
) -> list[Row]:
    """Return by how many per cent RRL lies below each rival, seed by seed under the same load.

    Seeds with which the rival has nothing to lie below are left out, and counted in the note.

    Args:
        case: Its name.
        runs: Of the case.
        what: What is compared, one of :data:`FIGURES`.
        published: The paper's per cent, by rival.
        note: For every row.
    """
    ours, (value, _) = of_agent(runs, AGENTS[0]), FIGURES[what]
    rows = []
    for rival, paper in published.items():
        pairs = list(zip(ours, of_agent(runs, rival), strict=True))
        saved = [100.0 * (1.0 - value(mine) / value(other)) for mine, other in pairs if value(other) > 0]
        without = len(pairs) - len(saved)
        seeds = f"on {without} of {len(pairs)} seeds the rival had none" if saved else "the rival had none"
        said = "; ".join(filter(None, (note, seeds if without else "")))
        name = f"{case}: {what} of RRL below {NAMES.get(rival, rival)}"
        if saved:
            rows.append(row(name, saved, unit="%", published=paper, note=said))
        else:
            rows.append(Row(id=name, published=paper, measured=None, unit="%", note=said))
    return rows


def figure_rows(
    name: str, figures: Sequence[Figures], shown: Iterable[str], *, notes: Mapping[str, str] | None = None
) -> Iterator[Row]:
    """Yield a row, median and spread over seeds, for each of the figures that was measured.

    Args:
        name: Of whatever was measured.
        figures: Of each seed.
        shown: Which of :data:`FIGURES`.
        notes: For some of the rows, by figure.
    """
    for what in shown:
        value, unit = FIGURES[what]
        numbers = [value(one) for one in figures]
        if not np.isnan(numbers).all():
            yield row(f"{name}: {what}", numbers, unit=unit, note=(notes or {}).get(what, ""))


def agent_rows(case: str, runs: Sequence[AgentRun], shown: Iterable[str]) -> list[Row]:
    """Return figures of each agent, figure by figure.

    Args:
        case: Its name.
        runs: Of the case.
        shown: Which of :data:`FIGURES`.
    """
    agents = dict.fromkeys(run.spec.label for run in runs)
    return [
        one
        for what in shown
        for agent in agents
        for one in figure_rows(f"{case}, {NAMES.get(agent, agent)}", of_agent(runs, agent), [what])
    ]


def fewer_rows(case: str, rows: Sequence[Row], what: str, windows: int, least: float) -> list[Row]:
    """Return how many times fewer windows RRL needs than each rival.

    Args:
        case: Its name.
        rows: The rows of :func:`agent_rows`, among them the windows of each agent.
        what: The name of the figure in these rows, such as "windows to converge".
        windows: The length of a run.
        least: What is asked for, at least.

    Returns:
        A row for each rival; no rows where the windows are not known, as in runs without exact costs.
    """
    medians = {row.id: row.measured for row in rows}
    names = {NAMES[agent]: f"{case}, {NAMES[agent]}: {what}" for agent in (AGENTS[0], *RIVALS)}
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
    """Return a row with the ratio of two medians, and a note whether it reaches the target.

    Args:
        name: Of the row.
        slow: Windows that the slower one needs, the median of its seeds; None if half of them or more never
            got there, which counts as the whole run.
        fast: Windows that the faster one needs; None if half of its seeds or more never got there, which
            leaves no ratio.
        windows: The length of the slower one's run.
        least: What is asked for, at least.
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
