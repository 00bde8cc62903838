"""Plans Nexus epochs: squishy bin packing of the rates that came, or the batch-oblivious baseline.

A plan is made at the end of each epoch, and before it if a session's rate, or the load of all together, has
left the band around what was planned (below 0.8, above 1.1, and more than chance explains). Rates are planned
with a margin, for requests come in bursts. Accelerators without a session are released.

A model that a backend loads costs requests of those that it serves, so a backend keeps what it hosts as long
as half of the margin is left.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tuner.cluster.epochs.rates import KnownRates, RateEstimate, changed
from tuner.cluster.epochs.record import EpochRecord, Observed
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import Simulation
from tuner.errors import InvalidInput
from tuner.planning.packing.epoch import plan_epoch
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.oblivious import oblivious_rows
from tuner.planning.packing.plan import MIB, Backend, ClusterPlan
from tuner.rounding import ROUNDING
from tuner.scheduling.batching.nexus import NexusOptions
from tuner.scheduling.batching.nexus_epoch import build_open, replan
from tuner.scheduling.batching.nexus_plan import Placement, raised_batches, uncapped

__all__ = ["NexusEpochs"]

RAREST = 0.1
"""Requests/s that are planned for at least: a session always has a backend."""


class NexusEpochs:
    """Plans the epochs of one simulation, which it makes.

    Args:
        scenario: The rates of its sessions are read at time 0 only, as a first guess.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._spec = spec = scenario.cluster_spec()
        memory = math.inf if scenario.memory_mib is None else scenario.memory_mib * MIB
        self._backends = [Backend(name=str(index), memory=memory) for index in range(len(spec.kinds))]
        allowed = spec.delays.response + spec.delays.control + spec.delays.data
        self._loads = [
            SessionLoad(
                name=str(index),
                latency=one.latency[0],
                budget=max(one.slo - allowed, 0.0),
                rate=0.0,
                memory=session.memory_mib * MIB,
            )
            for index, (one, session) in enumerate(zip(spec.sessions, scenario.each_session, strict=True))
        ]
        self._plan: ClusterPlan | None = None
        self._pending: tuple[float, Placement] | None = None
        self._cost = np.array([1 / load.peak if load.fits else 0.0 for load in self._loads])  # s
        self._estimate = RateEstimate(self._first_rates(), self._cost, scenario.epoch_s)
        self._planned: KnownRates = self._estimate.known
        self._used = 0
        self._hosted: list[set[int]] | None = None
        self.simulation = Simulation(scenario)
        options = NexusOptions(**{"frontends": scenario.frontends, **scenario.options})
        self._cap = options.cap
        self.simulation.change_policy(build_open(spec, options))
        self.simulation.measure(0.0, scenario.interval.end)

    def begin(self) -> None:
        """Plan for the rates that the scenario begins with; the models are loaded already."""
        self._make_plan()
        self.use_loaded()

    def loaded_at(self) -> float:
        """Return when the models of the next plan are loaded, s; infinite if there is none."""
        return math.inf if self._pending is None else self._pending[0]

    def interval_ends(self) -> float:
        """Return no time: models that have been loaded change nothing about the rates that come."""
        return math.inf

    def use_loaded(self) -> None:
        """Send requests by the next plan, whose models have been loaded."""
        assert self._pending is not None, "there is no next plan"
        _, placement = self._pending
        self._pending = None
        self._used = sum(1 for row in placement.backends if row)
        self.simulation.change_policy(replan(self.simulation.policy, placement))

    def end_interval(self, seen: Observed, epoch_ended: bool) -> EpochRecord:
        """Plan again at the end of an epoch, or before it if the rates have clearly changed."""
        used, loaded = max(self._used, 1), 0
        early = changed(seen, self._planned, self._cost).any()
        self._estimate.see(seen)
        plan = self._pending is None and (epoch_ended or bool(early))
        if plan:
            loaded = self._make_plan()
        return EpochRecord(
            time=self.simulation.now,
            requests=int(seen.requests.sum()),
            bad=seen.bad,
            accelerators=used,
            idle=seen.scaling.idle(used),
            desired=len(self._plan.backends) if self._plan else used,
            loaded=loaded,
            planned=plan,
        )

    def _first_rates(self) -> np.ndarray:
        processes = [session.process() for session in self._scenario.each_session]
        rates = [one.schedule.rate(0.0) if one.schedule is not None else one.rate for one in processes]
        return np.array(rates)

    def _make_plan(self) -> int:
        """Plan for the known rates, and begin to load the plan's models; return how many are loaded."""
        self._planned = self._estimate.known
        wanted = np.maximum(self._planned.rate * self._scenario.margin, RAREST).tolist()
        if self._scenario.planner == "oblivious":
            placement = Placement.of(oblivious_rows(self._loads, wanted, len(self._backends)))
            self._check_memory(placement)
            loads = self._new_models(placement)
        else:
            now = [replace(load, rate=rate) for load, rate in zip(self._loads, wanted, strict=True)]
            margin = self._scenario.margin
            plan = plan_epoch(
                lambda _: now, self._backends, previous=self._plan, spill=2 * margin / (1 + margin)
            )
            self._plan, placement = plan, self._placement(plan)
            loads = self._new_models(placement)
        if self._cap == "profile":
            placement = uncapped(placement, self._spec)
        seconds = self._scenario.load_s
        for backend, count in loads.items():
            self.simulation.occupy(backend, seconds * count)
        self._hosted = [{share.session for share in row} for row in placement.backends]
        longest = max(loads.values(), default=0) * seconds
        self._pending = (self.simulation.now + longest, placement)
        return sum(loads.values())

    def _check_memory(self, placement: Placement) -> None:
        """Raise InvalidInput if the models of a backend do not fit into its memory."""
        for backend, row in zip(self._backends, placement.backends, strict=True):
            need = sum(self._loads[share.session].memory for share in row)
            if need > backend.memory * (1 + ROUNDING):
                problem = (
                    f"is {backend.memory / MIB:g}, but oblivious, which does not look at it, puts models of "
                    f"{need / MIB:g} MiB together on accelerator {backend.name}"
                )
                raise InvalidInput("memory_mib", problem, "let nexus plan, or leave it out")

    def _new_models(self, placement: Placement) -> dict[int, int]:
        """Return how many models each backend must load; none at time 0."""
        before = self._hosted
        if before is None:
            return {}
        new = {
            backend: len({share.session for share in row} - before[backend])
            for backend, row in enumerate(placement.backends)
        }
        return {backend: count for backend, count in new.items() if count}

    def _placement(self, plan: ClusterPlan) -> Placement:
        rows: list[list[tuple[int, int, float]]] = [[] for _ in self._backends]
        for backend in plan.backends:
            members = [(int(one.name), one.batch) for one in backend.sessions]
            raised = raised_batches(self._spec.sessions, 0, members)
            rows[int(backend.name)] = [
                (session, size, one.rate)
                for (session, _), size, one in zip(members, raised, backend.sessions, strict=True)
            ]
        return Placement.of(rows)
