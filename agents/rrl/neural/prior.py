"""The neural estimator as a prior of the smoother: it watches a server, and says what configurations cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Self

import numpy as np

from tuner.agents.policy_file import StoredArrays
from tuner.agents.rrl.neural.estimator import STATISTICS, costs_of, describable, estimate
from tuner.agents.rrl.neural.knowledge import SIZES, Reference, ServerKnowledge, complete_profile
from tuner.agents.rrl.neural.queueing import settings_of, split_time
from tuner.agents.rrl.prior import LogCosts
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace, Role
from tuner.objective import GOALS, BadRateObjective, Objective, Slo

__all__ = ["NeuralPrior", "estimable"]

BIN = 0.05
"""Octaves of load (3.5 %) within which one estimate stands for all."""
SEEN_DOUBT = 0.1
"""How unsure an execution time is that a window showed: the standard deviation of its logarithm. In a window
a batch takes longer than alone, because it shares the cores with the rest of the load."""
LEAST_BURSTINESS = 0.05
OTHER_BURSTINESS = 2.0
"""A window's burstiness replaces the known one if they differ by more than this factor. Seen by the server's
counters alone, Poisson arrivals (burstiness 1) first show 0.3 to 2.1; a load that triples shows about 60."""
OTHER_ROWS = 1.25
"""Likewise for the mean number of rows of a request: as much as a load level spans. What was watched before
was of other requests then."""
ON_GPU = 0.05
"""Share of the GPUs' time above which a server that was taken for one on the processor is on them after all:
under a low load, as at night, the first window may have shown none."""
NEAR = (-0.8, 0.4)
"""A window becomes a further reference unless there is one at a load near its own: the logarithm of that load
over its own lies between these two (0.45 and 1.5 times). In the training references lay so far from the load
asked for, and no farther. References closer together, one for each half octave, changed what is expected at
loads that were known already, and gained nothing."""
CONTENDED = 1.3
"""The execution time of a window's batches is not learned if it is more than this many times what their
requests would take one by one, at the time per request of a batch seen before: they shared their cores with
too many. Believed, it would make small batches look like the best (``docs/estimator.md``)."""
GROWTH = 1.1
"""The profile is learned again only from a batch this many times as large as the largest so far. The factor
is small because with the goal ``cpu`` the best lies close to the SLO, and a few per cent of doubt decide
whether it is ever tried."""


KEPT = 1_000_000
"""Configurations at all loads together of which estimates are kept, some 130 bytes each ..."""
LEAST_KEPT = 8
"""... and the loads for which they are kept, however large the space is."""


class NeuralPrior:
    """What configurations are expected to cost, from what was seen of a server.

    Life: :meth:`watch` with every window; :meth:`at` once :attr:`ready`; :meth:`move` if its machine differs
    from the one that it was saved on. Two threads may call :meth:`at` at once, as long as neither of the
    others runs.

    Args:
        space: The configurations.
        objective: What is minimised, with the cores of the server's machine.
        knowledge: What is known already, such as a profile that somebody measured.
    """

    origin = "pre-trained"

    def __init__(
        self,
        space: KnobSpace,
        objective: Objective,
        *,
        knowledge: ServerKnowledge | None = None,
    ) -> None:
        self._space = space
        self._objective = objective
        self._given = knowledge is not None
        self.knowledge = knowledge
        self._seen: dict[float, tuple[float, float]] = {}  # batch size: seconds, and their doubt
        self._references: list[Reference] = []
        if knowledge is not None and knowledge.reference is not None:
            self._refer(knowledge.reference)
        self._estimates: dict[tuple[int, float], tuple[LogCosts, tuple[str, ...]]] = {}
        self._lock = Lock()  # of these: a fit asks for them in a thread of its own

    @property
    def ready(self) -> bool:
        """Whether enough is known to say anything."""
        return self.knowledge is not None

    @property
    def broken(self) -> float:
        """Logarithm of the cost that just breaks the SLO, with the goals ``cpu`` and ``gpu``; else -inf.

        The configuration of the least use often lies close to the SLO. To find it, configurations must be
        tried that may just break the SLO. The configuration of the least latency lies far from it.
        """
        return math.log(2.0) if self._objective.goal in ("cpu", "gpu") else -math.inf

    def move(self, cores: float) -> bool:
        """Expect what the server does on a machine with this many cores; returns whether it had others."""
        if cores == self._objective.cores:
            return False
        self._objective = replace(self._objective, cores=cores)
        if self.knowledge is not None:
            self.knowledge = replace(self.knowledge, cores=cores)
        self._estimates = {}
        return True

    def watch(self, number: int, seen: Mapping[str, float]) -> bool:
        """Take in what a window of a configuration showed; returns whether that changed what is expected.

        Args:
            number: Of the configuration.
            seen: By the names of the quantities (:meth:`~tuner.measurement.Measurement.figures`).
        """
        before = self.knowledge
        if not (seen["requests"] > 0 and seen["rate"] > 0):
            return False
        # A profile that was given stays. But of a graph of operations only a window shows how long it takes,
        # in the training, too.
        shown = not self._given or self._space.with_role(Role.INTER_OP) is not None
        if shown and seen["compute_mean"] > 0:
            self._learn_profile(number, seen)
        if self.knowledge is not None and not self._given:
            self._learn_burstiness(self.knowledge, seen["burstiness"])
            self._learn_place(self.knowledge, seen["gpu"])
        if self.knowledge is not None:
            self._learn_rows(self.knowledge, seen["request_rows"])
        changed = self.knowledge is not before
        if self.knowledge is not None:
            reference = Reference(
                configuration=number,
                rate=seen["rate"],
                latencies=np.array([seen[statistic] for statistic in STATISTICS]),
                use=seen["gpu" if self.knowledge.gpu else "cpu"],
                inside=np.array([seen["compute_mean"], seen["queue_mean"], seen["batch_mean"]]),
            )
            changed |= self._refer(reference)
        if changed:
            self._estimates = {}
        return changed

    def _refer(self, reference: Reference) -> bool:
        """Keep a reference unless one is near enough to its load already; returns whether it was kept."""
        low, high = NEAR
        if any(low <= math.log(one.rate / reference.rate) <= high for one in self._references):
            return False
        self._references.append(reference)
        return True

    def _learn_profile(self, number: int, seen: Mapping[str, float]) -> None:
        """Take in how long batches took, unless other work on their cores made them longer."""
        size = max(seen["batch_mean"], 1.0) if math.isfinite(seen["batch_mean"]) else 1.0
        seconds, cores = seen["compute_mean"], self._objective.cores
        if self._space.with_role(Role.INTER_OP) is not None:
            one = settings_of(self._space, cores).row(np.array([number]))
            seconds /= float(split_time(one, cores)[0])
        if self._seen and size < GROWTH * max(self._seen):
            return
        if any(seconds > CONTENDED * took * size / at for at, (took, _) in self._seen.items()):
            return
        self._seen[size] = (seconds, SEEN_DOUBT)
        times, doubt = complete_profile(self._seen)
        if self.knowledge is not None:
            self.knowledge = replace(self.knowledge, seconds=times, doubt=doubt)
            return
        self.knowledge = ServerKnowledge(
            cores=cores,
            gpu=seen["gpu"] > 0.0,  # a GPU that idles while requests are answered is not the server's
            seconds=times,
            doubt=doubt,
        )

    def _learn_burstiness(self, knowledge: ServerKnowledge, burstiness: float) -> None:
        """Take in one that is clearly another: without clients it is at first unknown, and then unsure."""
        if not math.isfinite(burstiness):
            return
        shown = max(burstiness, LEAST_BURSTINESS)
        if abs(math.log(shown / knowledge.burstiness)) > math.log(OTHER_BURSTINESS):
            self.knowledge = replace(knowledge, burstiness=shown)

    def _learn_place(self, knowledge: ServerKnowledge, gpu: float) -> None:
        """Take in that the server is on a GPU; of what was watched only the use of the processor is known."""
        if gpu > ON_GPU and not knowledge.gpu:
            self.knowledge = replace(knowledge, gpu=True)
            self._references = []

    def _learn_rows(self, knowledge: ServerKnowledge, rows: float) -> None:
        """Take in how many rows a request has, at least 1, if clients clearly send others than before."""
        if not math.isfinite(rows):
            return
        shown = max(rows, 1.0)
        if abs(math.log(shown / knowledge.rows)) > math.log(OTHER_ROWS):
            self.knowledge = replace(knowledge, rows=shown)
            self._references = []

    def at(self, load: float, left: float = 1.0) -> LogCosts:
        """Return what configurations are expected to cost, with the cores that other processes leave.

        Args:
            load: Octaves.
            left: Share of the machine that its other processes leave.
        """
        return self._estimate(load, left)[0]

    def unlike(self, load: float, left: float = 1.0, width: float = 0.0) -> tuple[str, ...]:  # noqa: ARG002
        """Return in which respects the server at a load is unlike those of the training; mostly in none."""
        return self._estimate(load, left)[1]

    def _estimate(self, load: float, left: float) -> tuple[LogCosts, tuple[str, ...]]:
        """Return what configurations are expected to cost, and what is out of the training's range."""
        assert self.knowledge is not None, "watch a window first"
        key = round(load / BIN), left
        with self._lock:
            found = self._estimates.pop(key, None)
            if found is None:
                of_bin = key[0] * BIN
                knowledge = replace(self.knowledge, reference=self._nearest(of_bin))
                if not knowledge.gpu:
                    knowledge = replace(knowledge, cores=knowledge.cores * left)
                expected = estimate(self._space, knowledge, 2.0**of_bin)
                found = costs_of(expected, self._objective), expected.unlike
                if len(self._estimates) >= max(KEPT // self._space.size, LEAST_KEPT):
                    del self._estimates[next(iter(self._estimates))]  # the one asked for longest ago
            self._estimates[key] = found
            return found

    def _nearest(self, load: float) -> Reference | None:
        """Return the reference whose load is nearest to one, in octaves; None if nothing was watched."""
        return min(self._references, key=lambda one: abs(math.log2(one.rate) - load), default=None)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything it knows, which :meth:`stored` reads."""
        objective = self._objective
        arrays = {
            "neural_objective": np.array(
                [
                    float(STATISTICS.index(objective.slo.statistic)),
                    objective.slo.latency,
                    float(GOALS.index(objective.goal)),
                    objective.cores,
                ]
            ),
            "neural_profile": np.array([[size, *pair] for size, pair in self._seen.items()]).reshape(-1, 3),
        }
        if self.knowledge is None:
            return arrays
        k = self.knowledge
        arrays["neural_server"] = np.concatenate([[float(k.gpu), k.burstiness], k.seconds, k.doubt])
        arrays["neural_rows"] = np.array([k.rows])
        rows = [[r.configuration, r.rate, r.use, *r.latencies, *r.inside] for r in self._references]
        arrays["neural_references"] = np.array(rows, np.float64).reshape(-1, 10)
        return arrays

    @classmethod
    def stored(cls, arrays: StoredArrays, space: KnobSpace) -> Self | None:
        """Read what :meth:`arrays` returned; None if there is nothing of it.

        Raises:
            ValueError: A value is out of range.
            StorageError: An array is missing or of another shape.
        """
        if "neural_objective" not in arrays:
            return None
        objective = _stored_objective(arrays)
        prior = cls(space, objective)
        seen = arrays.take("neural_profile", (None, 3))
        prior._seen = {float(size): (float(seconds), float(doubt)) for size, seconds, doubt in seen}
        if "neural_server" in arrays:
            prior.knowledge = _stored_knowledge(arrays, objective.cores)
            for reference in _stored_references(arrays, space):
                prior._refer(reference)
        return prior


def estimable(space: KnobSpace, objective: Objective | None) -> bool:
    """Whether the estimator can say what configurations cost by an objective."""
    return objective is not None and describable(space) and not isinstance(objective, BadRateObjective)


def _stored_objective(arrays: StoredArrays) -> Objective:
    """Read what a prior minimises.

    Raises:
        ValueError: A value is out of range.
        StorageError: The array is of another shape.
    """
    statistic, latency, goal, cores = map(float, arrays.take("neural_objective", (4,)))
    if not (statistic in range(len(STATISTICS)) and goal in range(len(GOALS))):
        raise ValueError("its objective is unknown")
    try:
        slo = Slo(statistic=STATISTICS[int(statistic)], latency=latency)
        return Objective(slo=slo, goal=GOALS[int(goal)], cores=cores)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _stored_knowledge(arrays: StoredArrays, cores: float) -> ServerKnowledge:
    """Read what a prior knows of its server, but for the references; see :func:`_stored_objective`."""
    gpu, burstiness, *profile = map(float, arrays.take("neural_server", (2 + 2 * SIZES.size,)))
    seconds, doubt = np.array(profile).reshape(2, -1)
    rows = float(arrays.take("neural_rows", (1,))[0]) if "neural_rows" in arrays else 1.0  # an older policy
    if not (
        np.isfinite(seconds).all()
        and np.isfinite(doubt).all()
        and (doubt > 0).all()
        and 0 < burstiness < math.inf
        and 1 <= rows < math.inf
    ):
        raise ValueError("what it knows of its server is out of range")
    return ServerKnowledge(
        cores=cores, gpu=bool(gpu), seconds=seconds, doubt=doubt, rows=rows, burstiness=burstiness
    )


def _stored_references(arrays: StoredArrays, space: KnobSpace) -> Iterator[Reference]:
    """Read the windows that were watched; see :func:`_stored_objective`.

    An older policy has one at most, under a name of its own.
    """
    if "neural_references" in arrays:
        rows = arrays.take("neural_references", (None, 10))
    elif "neural_reference" in arrays:
        rows = arrays.take("neural_reference", (10,))[None]
    else:
        return
    for number, rate, use, *rest in rows.tolist():
        if number not in range(space.size) or not 0 < rate < math.inf:
            raise ValueError("what it watched is out of range")
        yield Reference(
            configuration=int(number),
            rate=rate,
            use=use,
            latencies=np.array(rest[:4]),
            inside=np.array(rest[4:]),
        )
