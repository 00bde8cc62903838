"""Scales a Symphony cluster by advice: from the bad rate and the idle time of each interval (section 4.4).

Every accelerator loads all models, so that any can execute any. More are asked for at the end of an interval
of the looks, fewer only at the end of an epoch. A new one serves as soon as it has loaded all models; with it
an interval begins, for what was bad before would ask for as many a second time.

The advice is a number. Which unlike accelerators are in use follows from it: always one of each kind that it
takes to serve every session, and of all kinds the same share, as far as whole accelerators allow.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from tuner.cluster.epochs.record import EpochRecord, Observed
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import Simulation
from tuner.planning.autoscale import ScalingRule
from tuner.scheduling.fleet import Fleet, can_serve, park, unpark
from tuner.scheduling.vocabulary import Cluster

__all__ = ["SymphonyEpochs"]

UNLIMITED = 1 << 20
"""Most accelerators that advice asks for where it is not followed."""


class SymphonyEpochs:
    """Scales the cluster of one simulation, which it makes.

    Args:
        scenario: Its accelerators are the most that can be in use.
        fixed: Whether advice is recorded and not followed; it may then ask for more than there are.
    """

    def __init__(self, scenario: Scenario, *, fixed: bool = False) -> None:
        self._fixed = fixed
        self._count = len(scenario.cluster_spec().kinds)
        self._models = len(scenario.each_session)
        self._load = scenario.load_s * self._models
        self._pending: tuple[float, list[int]] | None = None
        self._epoch: Observed | None = None
        self.simulation = Simulation(scenario)
        policy = self.simulation.policy
        self._order, least = _in_order(policy.cluster, policy.fleet)
        self._used = self._order
        # (K, M, B+1) s; no rows if all accelerators are of one kind
        self._latency = policy.cluster.latency[: len(policy.fleet.of_kind)].copy()
        self._rule = ScalingRule(least=least, most=UNLIMITED if fixed else self._count)
        self.simulation.measure(0.0, scenario.interval.end)

    def begin(self) -> None:
        """Do nothing: all accelerators are in use, with their models loaded."""

    def loaded_at(self) -> float:
        """Return when new accelerators have loaded their models, s; infinite if there are none."""
        return math.inf if self._pending is None else self._pending[0]

    def interval_ends(self) -> float:
        """Return when new accelerators begin: an interval has one number of them."""
        return self.loaded_at()

    def use_loaded(self) -> None:
        """Use the accelerators that have loaded their models."""
        assert self._pending is not None, "nothing is being loaded"
        new, self._pending = self._pending[1], None
        policy = self.simulation.policy
        for accelerator in new:
            unpark(policy.cluster, policy.fleet, accelerator)
        used = {*self._used, *new}
        self._used = [one for one in self._order if one in used]
        self._offer_kinds()
        self._epoch = None

    def end_interval(self, seen: Observed, epoch_ended: bool) -> EpochRecord:
        """Follow the advice: at once to use more accelerators, at the end of an epoch to use fewer."""
        used = len(self._used)
        self._epoch = seen if self._epoch is None else self._epoch.plus(seen)
        short = self._desired(used, seen)
        desired = self._desired(used, self._epoch) if epoch_ended else used
        if short > used:
            desired = max(desired, short)
        changes = not self._fixed and self._pending is None and desired != used
        if epoch_ended or changes:
            self._epoch = None
        record = EpochRecord(
            time=self.simulation.now,
            requests=int(seen.requests.sum()),
            bad=seen.bad,
            accelerators=used,
            idle=seen.scaling.idle(used),
            desired=desired,
            loaded=max(desired - used, 0) * self._models if changes else 0,
            planned=changes,
        )
        if changes:
            self._scale(desired)
        return record

    def _desired(self, used: int, seen: Observed) -> int:
        return self._rule.advise(used, seen.scaling).desired

    def _scale(self, desired: int) -> None:
        policy = self.simulation.policy
        if desired > len(self._used):
            used = set(self._used)
            free = [one for one in self._order if one not in used]
            self._pending = (self.simulation.now + self._load, free[: desired - len(self._used)])
        kept = []
        for place, accelerator in enumerate(self._used):
            if place < desired or not park(policy.cluster, policy.fleet, accelerator):
                kept.append(accelerator)
        self._used = kept
        self._offer_kinds()

    def _offer_kinds(self) -> None:
        """Let no batch be planned for a kind of which no accelerator is in use: it would never be sent."""
        cluster = self.simulation.policy.cluster
        used = set(cluster.accelerators["kind"][self._used].tolist())
        for kind, latency in enumerate(self._latency):
            cluster.latency[kind, :, 1:] = latency[:, 1:] if kind in used else np.inf


def _in_order(cluster: Cluster, fleet: Fleet) -> tuple[list[int], int]:
    """Return the accelerators, the first to use first, and how many of them must always be in use.

    Those few leave every session one that can serve it; the others come with the kinds in proportion.
    """
    kinds = cluster.accelerators["kind"].tolist()
    if fleet.kinds.size == 1:
        return list(range(len(kinds))), 1
    sessions = range(len(cluster.sessions))
    served = {kind: {one for one in sessions if can_serve(cluster, one, kind)} for kind in set(kinds)}
    left, needed = set[int]().union(*served.values()), set[int]()
    while left:
        kind = max(served, key=lambda each: len(served[each] & left))
        needed.add(kind)
        left -= served[kind]
    counts, seen = Counter(kinds), Counter[int]()
    places = []
    for kind in kinds:
        first = kind in needed and not seen[kind]
        places.append((not first, (seen[kind] + 0.5) / counts[kind]))
        seen[kind] += 1
    return sorted(range(len(kinds)), key=places.__getitem__), max(len(needed), 1)
