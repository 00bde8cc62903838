"""The scheduler of a simulated cluster as a backend: its knobs, its counters, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import TypeAdapter

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.cluster.outcome import Outcome
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import Simulation
from tuner.cluster.statistics import edges
from tuner.errors import InvalidInput
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import NOT_KNOWN, QUANTILES, Measurement, Work, latencies
from tuner.profile import BatchingProfile
from tuner.scheduling.batching.symphony import SymphonyOptions, reconfigure
from tuner.scheduling.knobs import configuration_of, options_from, scheduler_space

__all__ = ["SimulatedCluster", "check_scenario", "last_request"]


def check_scenario(scenario: Scenario) -> None:
    """Raise InvalidInput if the scheduler of a scenario has no knobs, or a planner changes its cluster."""
    if scenario.planner is not None:
        problem = f"{scenario.planner} does not plan here, where all accelerators are in use"
        raise InvalidInput("planner", problem, "leave it out, and write policy: symphony")
    if scenario.policy != "symphony":
        problem = f"{scenario.policy} has no knobs"
        raise InvalidInput("policy", problem, "the scenario's policy must be symphony")


def last_request(scenario: Scenario) -> float:
    """Return when the last request of a scenario's traces comes, s; infinite if it has none."""
    times = [session.process().times for session in scenario.each_session if session.traced]
    return max((float(one[-1]) for one in times if one is not None), default=math.inf)


class SimulatedCluster:
    """Begins idle at virtual time 0, with the default configuration of its knobs.

    Time passes in :meth:`sleep` and :meth:`measure`. Requests that are late count as failures like those that
    are dropped: nobody waits for them any more.

    Args:
        scenario: The cluster and its load, under the policy ``symphony``; its length does not matter.
        space: The knobs; all of them if None.

    Raises:
        InvalidInput: The policy has no knobs, or the scenario has a planner.
    """

    def __init__(self, scenario: Scenario, space: KnobSpace | None = None) -> None:
        check_scenario(scenario)
        self._space = space or scheduler_space()
        self._scenario = scenario
        self._simulation = Simulation(scenario.model_copy(update={"requests": None}))  # an episode has more
        self.ends = last_request(scenario)
        """When the last request of the scenario's traces comes, s; infinite if it has none."""
        self.settle = max(session.slo for session in scenario.each_session)
        """How long a change of the knobs takes to show, s."""
        self._options: SymphonyOptions = TypeAdapter(SymphonyOptions).validate_python(scenario.options)
        self._configuration = Configuration(
            {name: configuration_of(self._options)[name] for name in self._space.names}
        )
        self._counters = _no_counters()
        self._run(self._space.default)

    @property
    def space(self) -> KnobSpace:
        """The scheduler's knobs."""
        return self._space

    def describe(self) -> Description:
        """Return who this is."""
        return Description(
            target="simulated cluster",
            server="simulated-cluster",
            version="1",
            model=", ".join(dict.fromkeys(session.name for session in self._scenario.sessions)),
            writable=True,
            quantiles=False,
            notes=("simulated: time is virtual and the clients are part of the simulation",),
        )

    def current(self) -> Configuration:
        """Return what the scheduler runs with."""
        return self._configuration

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the knobs, at once; batches that wait are planned again, and no request is lost.

        Raises:
            InvalidInput: A knob is unknown or missing, or its value unusable; values off the grid are fine.
        """
        for name in self._space.names:
            if name not in configuration:
                raise InvalidInput(f"knob {name}", "has no value", "a configuration gives every knob one")
        changed = configuration != self._configuration
        if changed:
            self._run(configuration)
        return ApplyReport(
            configuration=self._configuration,
            changed=changed,
            cost=ApplyCost.FREE,
            seconds=0.0,
            settle=self.settle if changed else 0.0,
        )

    def counters(self) -> Counters:
        """Return the totals since time 0."""
        return self._counters

    def profile(self) -> BatchingProfile | None:
        """There are several models; no one profile describes them."""
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self._simulation.now

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        if seconds > 0:
            self._pass(seconds)

    def measure(self, seconds: float, settle: float = 0.0) -> Measurement:
        """Return what a window shows.

        Args:
            seconds: Its length.
            settle: How much time to let pass before, s.
        """
        self.sleep(settle)
        start = self.now()
        outcome = self._pass(seconds)
        good = sum(session.good for session in outcome.sessions)
        weights, means, _ = _answered(outcome)
        scales = np.array([self._reference / s.slo for s in outcome.sessions if s.good + s.late])
        mean = float(np.average(means * scales, weights=weights)) if weights.size else NOT_KNOWN
        return _work(outcome).measurement(
            start=start,
            end=self.now(),
            configuration=self._configuration,
            requests=good,
            failures=outcome.requests - good,
            arrival_rate=outcome.rate,
            quantiles_from="client" if weights.size else "none",
            busy_instances=sum(outcome.utilisation),
            gpu=outcome.mean_utilisation,
            **latencies(mean, self._quantiles(outcome)),
        )

    @property
    def _reference(self) -> float:
        """The SLO that the latencies of the other sessions are scaled to, s."""
        return self._scenario.each_session[0].slo

    def _run(self, configuration: Mapping[str, float]) -> None:
        options = options_from(configuration, self._options)
        reconfigure(self._simulation.policy, options)
        self._options = options
        self._configuration = Configuration({name: float(configuration[name]) for name in self._space.names})

    def _pass(self, seconds: float) -> Outcome:
        """Let time pass and add what happened to the totals."""
        self._simulation.reset_totals()
        self._simulation.advance(seconds)
        outcome = self._simulation.outcome()
        self._counters = _added(self._counters, outcome, self.now())
        return outcome

    def _quantiles(self, outcome: Outcome) -> list[float]:
        """Return the quantiles of the latency over all sessions, scaled to the SLO of the first, s."""
        ends = [edges()[1:] * (self._reference / session.slo) for session in outcome.sessions]
        latency = np.concatenate(ends)
        counts = np.concatenate([session.latencies for session in outcome.sessions])
        order = np.argsort(latency, kind="stable")
        below = np.cumsum(counts[order])
        if below[-1] == 0:
            return [NOT_KNOWN] * len(QUANTILES)
        places = np.searchsorted(below, np.array([*QUANTILES.values()]) * below[-1])
        return [float(value) for value in latency[order][places]]


def _answered(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return answered requests, mean latency and mean queueing of the sessions with answers.   # 3 x (n,)."""
    rows = [(s.good + s.late, s.mean_latency, s.mean_queueing) for s in outcome.sessions if s.good + s.late]
    weights, means, waits = np.array(rows, dtype=float).reshape(-1, 3).T
    return weights, means, waits


def _work(outcome: Outcome) -> Work:
    """Return what was done, over the requests of all sessions that were answered, good and late."""
    weights, means, waits = _answered(outcome)
    counts = np.asarray(np.sum([session.batches for session in outcome.sessions], axis=0))  # (B+1,)
    return Work(
        requests=int(weights.sum()),
        queue=float((waits * weights).sum()),
        compute=float(((means - waits) * weights).sum()),
        inferences=int(np.arange(counts.size) @ counts),
        batch_counts=counts,
        batch_seconds=np.zeros(counts.size),
    )


def _no_counters() -> Counters:
    nothing = np.zeros(1, np.int64)
    return Counters(
        time=0.0, requests=0, failures=0, latency=0.0, queue=0.0, compute=0.0, inferences=0,
        batch_counts=nothing, batch_seconds=nothing.astype(float),
    )  # fmt: skip


def _added(before: Counters, outcome: Outcome, now: float) -> Counters:
    """Return the totals with an outcome added."""
    work, good = _work(outcome), sum(s.good for s in outcome.sessions)
    counts = work.batch_counts.copy()
    counts[: before.batch_counts.size] += before.batch_counts
    return replace(
        before,
        time=now,
        requests=before.requests + good,
        failures=before.failures + outcome.requests - good,
        latency=before.latency + work.queue + work.compute,
        queue=before.queue + work.queue,
        compute=before.compute + work.compute,
        inferences=before.inferences + work.inferences,
        batch_counts=counts,
        batch_seconds=np.zeros(counts.size),
    )
