"""Goodput of two Tritons with three models: the dispatcher beside the servers' own dynamic batching.

Dispatcher, servers and clients share two cores, so that what the dispatcher spends on a request is missing to
the models. Of the two mixes the light one shows how much that is, the heavy one what the batches are worth.
The same clients send the same requests to the dispatcher, under symphony with several deferrals and under
eager, and to the two servers by turns, which then batch by themselves, with several batch delays. The rate is
raised, for all of them together, as long as 99 % of the requests of every model are answered within its SLO,
counted by the clients.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.dispatch.bench import (
    HEAVY,
    MODELS,
    QUICK,
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

__all__ = ["DispatchGoodput", "bad_rates", "highest_rates"]

ALLOWED = 0.01
"""Share of a model's requests that may be late or refused."""
WARM_UP = 1.0
"""s of the same load before each trial."""
SYSTEMS: dict[str, dict[str, Any]] = {
    "symphony": {"policy": "symphony", **QUICK},
    "symphony, deferral 0.03": {"policy": "symphony", "options": {"deferral": 0.03}, **QUICK},
    "symphony, deferral 0.4": {"policy": "symphony", "options": {"deferral": 0.4}, **QUICK},
    "eager": {"policy": "eager", **QUICK},
    "grpcio, symphony": {"policy": "symphony"},
}
"""The dispatcher's settings. The deferrals are tried as the servers' delays are, because both say how long a
batch waits, and both can be tuned; the last is its default."""
STEP = 1.25
"""From one rate that is tried to the next, on the way up."""
TOLERANCE = 0.04
"""Relative distance of the result from a rate that failed: smaller differences than a step are seen."""
HICCUPS = 1
"""Seconds of a trial that do not count: those with most bad answers. If a machine that others share pauses
for 0.1 s, one request in sixty of a trial is late, whatever the system."""
Keeps = Callable[[float], bool]
"""Whether a rate is kept, requests/s of all models."""
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
        found: The outcome of each.
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
    minutes=80,
    live=True,
)
class DispatchGoodput(Experiment[Conditions, dict[str, float]]):
    """Raises the rate of all systems until they fail, in turns over the same servers."""

    seconds = Scaled(6.0, quick=2.0)
    """Of one trial."""
    mixes = Scaled(("heavy", "light"), quick=("light",))
    burstiness = Scaled((1.0, 4.0), quick=(1.0,))
    delays: Scaled[dict[str, tuple[float, ...]]] = Scaled(
        {"light": (5.0, 10.0, 20.0), "heavy": (10.0, 20.0, 40.0)}, quick={"light": (2.0,)}
    )
    """Batch delays of the servers' own batching, ms; the best of them counts. Shorter ones were never it; the
    longest are half of the tightest SLO, with which no time is left to execute."""
    first = Scaled({"light": 200.0, "heavy": 120.0}, quick={"light": 100.0})
    """The lowest rate that is tried, requests/s of all models."""
    most = Scaled({"light": 4000.0, "heavy": 3000.0}, quick={"light": 130.0})
    """Rates from this one on, requests/s, are not tried: two cores cannot serve so many requests."""

    def tasks(self) -> tuple[Conditions, ...]:
        return tuple(Conditions(mix, burstiness) for mix in self.mixes for burstiness in self.burstiness)

    def measure(self, conditions: Conditions, seed: int) -> dict[str, float]:
        models = MIXES[conditions.mix]
        with ExitStack() as running:
            tritons = running.enter_context(servers(2, models))
            addresses = [f"127.0.0.1:{one.ports.grpc}" for one in tritons]
            direct = CheckingClients(addresses, models)
            direct.learn(addresses[0])
            keeps: dict[str, Keeps] = {}
            for system, settings in SYSTEMS.items():
                dispatcher = running.enter_context(dispatching(tritons, models, **settings))
                clients = CheckingClients([dispatcher.address], models)
                clients.learn(addresses[0])
                keeps[system] = partial(self._serves, clients, nullcontext, conditions, seed)
            for delay in self.delays[conditions.mix]:
                alone = partial(batching, tritons, models, delay)
                keeps[f"triton {delay:g} ms"] = partial(self._serves, direct, alone, conditions, seed)
            first, most = self.first[conditions.mix], self.most[conditions.mix]
            for keep in keeps.values():  # so that no trial is the first work of a server or dispatcher
                keep(first)
            found = highest_rates(keeps, first, most)
        for system, rate in found.items():
            self.report(f"{conditions}: {system} {rate:.0f} r/s")
        return found

    def _serves(
        self,
        clients: CheckingClients,
        around: Callable[[], AbstractContextManager[None]],
        conditions: Conditions,
        seed: int,
        rate: float,
    ) -> bool:
        """Return whether enough requests of every model are answered in time at a rate, requests/s of all."""
        models = clients.models
        rates = rates_of(models, rate)
        offered = arrivals(rates, self.seconds, seed, conditions.burstiness)
        with around():
            clients.offer(arrivals(rates, WARM_UP, seed + 1, conditions.burstiness))
            answers = clients.offer(offered, seed=seed)
        return max(bad_rates(offered, answers, models).values()) <= ALLOWED

    def rows(self, found: Answers[Conditions, dict[str, float]]) -> Iterator[Row]:
        for conditions, runs in found.items():
            for system in runs[0]:
                yield row(f"{conditions}: {system}", [run[system] for run in runs], unit="r/s")
            for rival, over in (("triton", "its own batching"), ("eager", "eager")):
                bests = [_best(run, rival) for run in runs]
                ours = {"symphony": ["symphony"] * len(runs)}
                ours["symphony at its best"] = [_best(run, "symphony") for run in runs]
                for who, forms in ours.items():
                    pairs = list(zip(runs, forms, bests, strict=True))
                    ratios = [run[form] / max(run[best], 1.0) for run, form, best in pairs]
                    note = f"target: above; {_named(forms)} over {_named(bests)}"
                    yield row(f"{conditions}: {who} over {over}", ratios, published=1.0, note=note)

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
            "systems": SYSTEMS,
        }


def highest_rates(keeps: Mapping[str, Keeps], first: float, most: float) -> dict[str, float]:
    """Return the highest rate that each system kept, requests/s; 0 for one that did not keep the first.

    The rate rises step by step, and at each step every remaining system is tried, in alternating order, so
    that all of them meet the fast and the slow minutes of a machine that others share. A system that fails is
    tried again after the others. The rate only rises because an overload would disturb the next trial; at the
    end the last step of each system is bisected, in turns, too.

    Args:
        keeps: Whether a system keeps a rate, by its name.
        first: The lowest rate that is tried.
        most: Neither this rate nor a higher one is tried.
    """
    kept = dict.fromkeys(keeps, 0.0)
    failed: dict[str, float] = {}
    rate, left = first, list(keeps)
    while left and rate < most:
        doubtful = [system for system in left if not keeps[system](rate)]
        failed |= dict.fromkeys([system for system in doubtful if not keeps[system](rate)], rate)
        left = [system for system in reversed(left) if system not in failed]
        kept |= dict.fromkeys(left, rate)
        rate *= STEP
    turn = list(failed)
    while unsure := [name for name in turn if kept[name] and failed[name] > kept[name] * (1 + TOLERANCE)]:
        for name in unsure:
            middle = math.sqrt(kept[name] * failed[name])
            good = keeps[name](middle) or keeps[name](middle)
            (kept if good else failed)[name] = middle
        turn.reverse()
    return kept


def _best(run: dict[str, float], system: str) -> str:
    """Return which of the forms of a system kept the highest rate."""
    return max((name for name in run if name.startswith(system)), key=run.__getitem__)


def _named(forms: Sequence[str]) -> str:
    """Return the different forms of a system, for a note."""
    return " and ".join(dict.fromkeys(forms))


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
