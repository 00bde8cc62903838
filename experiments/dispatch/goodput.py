"""Goodput of two Tritons with three models: the dispatcher beside the servers' own dynamic batching.

Dispatcher, servers and clients share two cores, so that what the dispatcher spends on a request is missing to
the models. Of the two mixes the light one shows how much that is, the heavy one what the batches are worth.
The same clients send the same requests to the dispatcher, under symphony and under eager, and to the two
servers by turns, which then batch by themselves, with several batch delays. The rate is raised as long as
99 % of the requests of every model are answered within its SLO, counted by the clients.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.cluster.goodput import highest
from tuner.experiments.dispatch.bench import (
    HEAVY,
    MODELS,
    Answered,
    CheckingClients,
    Model,
    arrivals,
    dispatching,
    rates_of,
    servers,
)
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchGoodput", "bad_rates", "highest_rate"]

ALLOWED = 0.01
"""Share of a model's requests that may be late or refused."""
WARM_UP = 3.0
"""s of load before the first trial of each system."""
SYSTEMS = ("symphony", "eager")
STEP = 1.15
"""From one rate that is tried to the next, on the way up."""
TOLERANCE = 0.04
"""Relative distance of the result from a rate that failed: smaller differences than a step are seen."""
HICCUPS = 1
"""Seconds of a trial that do not count: those with most bad answers. If a machine that others share pauses
for 0.1 s, one request in sixty of a trial is late, whatever the system."""
MIXES = {"light": MODELS, "heavy": HEAVY}
"""What is served, by the name of the mix."""


class Conditions(NamedTuple):
    """What the systems are compared under."""

    mix: str
    burstiness: float

    def __str__(self) -> str:
        return f"{self.mix} models, burstiness {self.burstiness:g}"


def bad_rates(
    offered: Sequence[tuple[float, str]], found: Sequence[Answered], models: Sequence[Model]
) -> dict[str, float]:
    """Return the share of each model's requests that were late, refused or wrong.

    Args:
        offered: When each request was sent, s, and its model.
        found: What came of it.
        models: All models.
    """
    slos = {one.name: one.slo for one in models}
    bad, sent = Counter[tuple[int, str]](), Counter[tuple[int, str]]()  # by second and model
    for (when, name), one in zip(offered, found, strict=True):
        sent[int(when), name] += 1
        bad[int(when), name] += not (one.status == "OK" and one.right and one.latency <= slos[name])
    seconds = sorted({second for second, _ in sent}, key=lambda s: sum(bad[s, name] for name in slos))
    counted = seconds[: max(len(seconds) - HICCUPS, 1)]
    return {
        name: sum(bad[s, name] for s in counted) / max(sum(sent[s, name] for s in counted), 1)
        for name in slos
    }


@experiment(
    name="dispatch-goodput",
    title="Goodput of two Tritons with three models: the dispatcher beside the servers' own batching",
    minutes=30,
    live=True,
)
class DispatchGoodput(Experiment[Conditions, dict[str, float]]):
    """Raises the rate for each system until it fails, in turns over the same servers."""

    seconds = Scaled(6.0, quick=2.0)
    """Of one trial."""
    mixes = Scaled(("heavy", "light"), quick=("light",))
    burstiness = Scaled((1.0, 4.0), quick=(1.0,))
    delays: Scaled[dict[str, tuple[float, ...]]] = Scaled(
        {"light": (2.0, 5.0, 10.0), "heavy": (5.0, 10.0, 20.0)}, quick={"light": (2.0,)}
    )
    """Batch delays of the servers' own batching, ms; the best of them counts."""
    first = Scaled({"light": 300.0, "heavy": 200.0}, quick={"light": 100.0})
    """The lowest rate that is tried, requests/s of all models."""
    most = Scaled({"light": 4000.0, "heavy": 3000.0}, quick={"light": 130.0})
    """Below this it ends, requests/s: more than two cores can serve of such models."""

    def tasks(self) -> tuple[Conditions, ...]:
        return tuple(Conditions(mix, burstiness) for mix in self.mixes for burstiness in self.burstiness)

    def measure(self, conditions: Conditions, seed: int) -> dict[str, float]:
        found: dict[str, float] = {}
        models = MIXES[conditions.mix]
        with servers(2, models) as tritons:
            addresses = [f"127.0.0.1:{one.ports.grpc}" for one in tritons]
            direct = CheckingClients(addresses, models)
            direct.learn(addresses[0])
            for system in SYSTEMS:
                with dispatching(tritons, models, policy=system) as dispatcher:
                    clients = CheckingClients([dispatcher.address], models)
                    clients.learn(addresses[0])
                    found[system] = self._search(clients, conditions, seed)
                self.report(f"{conditions}: {system} {found[system]:.0f} r/s")
            for delay in self.delays[conditions.mix]:
                system = f"triton {delay:g} ms"
                with batching(tritons, models, delay):
                    found[system] = self._search(direct, conditions, seed)
                self.report(f"{conditions}: {system} {found[system]:.0f} r/s")
        return found

    def _search(self, clients: CheckingClients, conditions: Conditions, seed: int) -> float:
        """Return the highest rate that was within the SLOs, requests/s of all models."""
        models, first = clients.models, self.first[conditions.mix]

        def keeps(rate: float) -> bool:
            offered = arrivals(rates_of(models, rate), self.seconds, seed, conditions.burstiness)
            return any(self._keeps(clients, offered, seed) for _ in range(2))  # once more if it fails

        # The dispatcher learns how long batches take from those that it sends.
        clients.offer(arrivals(rates_of(models, first), WARM_UP, seed + 1))
        return highest_rate(keeps, first, self.most[conditions.mix])

    @staticmethod
    def _keeps(clients: CheckingClients, offered: list[tuple[float, str]], seed: int) -> bool:
        """Return whether every model has its share of good answers."""
        return max(bad_rates(offered, clients.offer(offered, seed=seed), clients.models).values()) <= ALLOWED

    def rows(self, found: Answers[Conditions, dict[str, float]]) -> Iterator[Row]:
        for conditions, runs in found.items():
            for system in runs[0]:
                yield row(f"{conditions}: {system}", [run[system] for run in runs], unit="r/s")
            for rival, over in (("triton", "its own batching"), ("eager", "eager")):
                ratios = [run["symphony"] / max(_best(run, rival), 1.0) for run in runs]
                yield row(f"{conditions}: symphony over {over}", ratios, published=1.0, note="target: above")

    def configuration(self) -> dict[str, Any]:
        return {
            "models": {
                mix: {one.name: {"slo_ms": one.slo * 1e3, "share": one.share} for one in MIXES[mix]}
                for mix in self.mixes
            },
            "seconds": self.seconds,
            "step": STEP,
            "tolerance": TOLERANCE,
            "delays_ms": self.delays,
        }


def highest_rate(keeps: Callable[[float], bool], first: float, most: float) -> float:
    """Return the highest rate that was kept, requests/s; 0 if the first was not.

    It is sought upwards, because an overload leaves its traces in the next trial; the last step is bisected.

    Args:
        keeps: Whether a system keeps a rate.
        first: The lowest rate that is tried.
        most: Neither this rate nor a higher one is tried.
    """
    rate, kept = first, 0.0
    while rate < most and keeps(rate):
        kept, rate = rate, rate * STEP
    return kept if rate >= most else highest(keeps, (kept, rate), TOLERANCE)


def _best(run: dict[str, float], system: str) -> float:
    return max(value for name, value in run.items() if name.startswith(system))


@contextmanager
def batching(tritons: Sequence[EmbeddedTriton], models: Sequence[Model], delay_ms: float) -> Iterator[None]:
    """Let the servers batch by themselves, with a delay."""
    _load(tritons, models, {"max_queue_delay_microseconds": round(delay_ms * 1e3)})
    try:
        yield
    finally:
        _load(tritons, models, None)


def _load(tritons: Sequence[EmbeddedTriton], models: Sequence[Model], dynamic: dict[str, int] | None) -> None:
    """Load every model with dynamic batching, or without."""
    import tritonclient.grpc as tritongrpc

    for triton in tritons:
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{triton.ports.grpc}") as client:
            for model in models:
                config = client.get_model_config(model.name, as_json=True)["config"]
                config.pop("dynamic_batching", None)
                if dynamic is not None:
                    config["dynamic_batching"] = dynamic
                client.load_model(model.name, config=json.dumps(config))
