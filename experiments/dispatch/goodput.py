"""Goodput of two Tritons with three models: the dispatcher beside the servers' own dynamic batching.

Dispatcher, servers and clients share two cores, so that what the dispatcher spends on a request is missing to
the models. Of the two mixes the light one shows how much that is, the heavy one what the batches are worth.
The same clients send the same requests to the dispatcher, under symphony with several deferrals and under
eager, and to the two servers by turns, which then batch by themselves, with several batch delays. A trial is
kept if 99 % of the requests of every model are answered within its SLO, counted by the clients. Near a
system's limit chance and the machine's pauses decide about a single trial; its goodput is the rate of which
every other one is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from scipy.stats import gmean

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

__all__ = [
    "ALLOWED",
    "CLIMB",
    "FINE",
    "MIXES",
    "NEAR",
    "SYSTEMS",
    "Conditions",
    "DispatchGoodput",
    "bad_rates",
    "bad_share",
    "rates_near_goodput",
]

ALLOWED = 0.01
"""Share of a model's requests that may be late or refused."""
WARM_UP = 1.0
"""s of the same load before each trial."""
SYSTEMS: dict[str, dict[str, Any]] = {
    "symphony": {"policy": "symphony", **QUICK},
    "symphony, deferral 0.03": {"policy": "symphony", "options": {"deferral": 0.03}, **QUICK},
    "symphony, deferral 0.2": {"policy": "symphony", "options": {"deferral": 0.2}, **QUICK},
    "eager": {"policy": "eager", **QUICK},
}
"""The dispatcher's settings. The deferrals are tried as the servers' delays are, because both say how long a
batch waits, and both can be tuned."""
CLIMB, NEAR, FINE = 1.5, 1.15, 1.07
"""From one rate that is tried to the next: on the way up, while a system's goodput is looked for around the
last rate that it kept, and then."""
PARTS = 2
"""Estimates of each goodput in one run, each from so many of its trials: their spread is the machine's."""
HICCUPS = 1
"""Seconds of a trial that do not count: those with most bad answers. If a machine that others share pauses
for 0.1 s, one request in sixty of a trial is late, whatever the system."""
Keeps = Callable[[float, int], bool]
"""Whether a rate is kept, requests/s of all models, in a trial, by its number: it says what is sent when."""
TRIALS = 1000
"""Between the seeds of the arrivals of two runs."""
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


def bad_share(  # noqa: PLR0917 - as many as a trial has
    clients: CheckingClients, rate: float, seconds: float, burstiness: float, seed: int, number: int
) -> float:
    """Send requests for a trial, and return the share of bad ones of the model that has most of them.

    Args:
        clients: Who sends them.
        rate: Requests/s of all models.
        seconds: Length of the trial; a second of the same load comes before it.
        burstiness: Squared coefficient of variation of the gaps.
        seed: Of the run.
        number: Of the trial: both say what is sent when.
    """
    rates, drawn = rates_of(clients.models, rate), TRIALS * seed + 2 * number
    offered = arrivals(rates, seconds, drawn, burstiness)
    clients.offer(arrivals(rates, WARM_UP, drawn + 1, burstiness))
    answers = clients.offer(offered, seed=drawn)
    return max(bad_rates(offered, answers, clients.models).values())


@experiment(
    name="dispatch-goodput",
    title="Goodput of two Tritons with three models: the dispatcher beside the servers' own batching",
    minutes=66,
    live=True,
    shown=40,
)
class DispatchGoodput(Experiment[Conditions, dict[str, list[float]]]):
    """Lets each system's rate go up and down around its goodput, in turns over the same servers."""

    seconds = Scaled(6.0, quick=2.0)
    """Of one trial."""
    mixes = Scaled(("heavy", "light"), quick=("light",))
    burstiness = Scaled((1.0, 4.0), quick=(1.0,))
    delays: Scaled[dict[str, tuple[float, ...]]] = Scaled(
        {"light": (10.0, 20.0), "heavy": (20.0, 30.0)}, quick={"light": (2.0,)}
    )
    """Batch delays of the servers' own batching, ms; the best of them counts. Of 5, 10 and 20, and of 10, 20
    and 40 with the heavy models, the others were never it."""
    first = Scaled(200.0, quick=100.0)
    """The rate that is tried first, requests/s of all models."""
    most = Scaled(4000.0, quick=130.0)
    """The highest rate that is tried, requests/s: more than two cores can serve."""
    settling = Scaled(3, quick=0)
    """Trials of each system after the climb, before those that count."""
    counted = Scaled(10, quick=2)
    """Trials of each system whose rates count."""

    def tasks(self) -> tuple[Conditions, ...]:
        return tuple(Conditions(mix, burstiness) for mix in self.mixes for burstiness in self.burstiness)

    def measure(self, conditions: Conditions, seed: int) -> dict[str, list[float]]:
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
            for keep in keeps.values():  # so that no trial is the first work of a server or dispatcher
                keep(self.first, 0)
            found = rates_near_goodput(keeps, self.first, self.most, self.settling, self.counted)
        for system, rates in found.items():
            self.report(f"{conditions}: {system} {gmean(rates):.0f} r/s")
        return found

    def _serves(  # noqa: PLR0917 - as many as a trial has
        self,
        clients: CheckingClients,
        around: Callable[[], AbstractContextManager[None]],
        conditions: Conditions,
        seed: int,
        rate: float,
        number: int,
    ) -> bool:
        """Return whether enough requests of every model are answered in time; see `Keeps`."""
        with around():
            return bad_share(clients, rate, self.seconds, conditions.burstiness, seed, number) <= ALLOWED

    def rows(self, found: Answers[Conditions, dict[str, list[float]]]) -> Iterator[Row]:
        for conditions, runs in found.items():
            for system in runs[0]:
                rates = [rate for run in runs for rate in _estimates(run[system])]
                yield row(f"{conditions}: {system}", rates, unit="r/s")
            for rival, over in (("triton", "its own batching"), ("eager", "eager")):
                bests = [_best(run, rival) for run in runs]
                ours = {"symphony": ["symphony"] * len(runs)}
                ours["symphony at its best"] = [_best(run, "symphony") for run in runs]
                for who, forms in ours.items():
                    ratios = [
                        mine / other
                        for run, form, best in zip(runs, forms, bests, strict=True)
                        for mine, other in zip(_estimates(run[form]), _estimates(run[best]), strict=True)
                    ]
                    note = f"target: above; {_named(forms)} over {_named(bests)}"
                    yield row(f"{conditions}: {who} over {over}", ratios, published=1.0, note=note)

    def configuration(self) -> dict[str, Any]:
        return {
            "models": {
                mix: {one.name: {"slo_ms": one.slo * 1e3, "share": one.share} for one in MIXES[mix]}
                for mix in self.mixes
            },
            "seconds": self.seconds,
            "steps": [CLIMB, NEAR, FINE],
            "trials": [self.settling, self.counted],
            "delays_ms": self.delays,
            "systems": SYSTEMS,
        }


def rates_near_goodput(
    keeps: Mapping[str, Keeps], first: float, most: float, settling: int, counted: int
) -> dict[str, list[float]]:
    """Return rates around the one of which each system keeps every other trial, requests/s.

    A rate that was kept is raised for the next trial, one that was not is lowered by the same step, so that
    the rates stay where both are as likely (up and down: Levitt, 1971, section II): their geometric mean is
    the goodput. The systems are tried in alternating order, so that all of them meet the fast and the slow
    minutes of a machine that others share. Before that the rate rises for all of them together until each has
    failed, because a far overload would disturb the next trial.

    Args:
        keeps: Whether a system keeps a rate, by its name.
        first: The rate that is tried first.
        most: The highest that is tried.
        settling: Trials of each system before those that count.
        counted: Trials of each system whose rates are returned.
    """
    rates = _climb(keeps, first, most)
    found: dict[str, list[float]] = {name: [] for name in keeps}
    turn = list(keeps)
    for number in range(settling + counted):
        step = NEAR if number < settling else FINE
        for name in turn:
            if number >= settling:
                found[name].append(rates[name])
            kept = keeps[name](rates[name], number)
            rates[name] = min(rates[name] * step, most) if kept else rates[name] / step
        turn.reverse()
    return found


def _climb(keeps: Mapping[str, Keeps], first: float, most: float) -> dict[str, float]:
    """Return the last rate that each system kept on the way up; the first for one that did not keep that."""
    kept = dict.fromkeys(keeps, first)
    rate, left = first, list(keeps)
    while left and rate <= most:
        left = [name for name in left if keeps[name](rate, 0)]
        kept |= dict.fromkeys(left, rate)
        left.reverse()
        rate *= CLIMB
    return kept


def _estimates(rates: Sequence[float]) -> list[float]:
    """Return the goodput by each part of the trials, requests/s."""
    size = len(rates) // PARTS
    return [float(gmean(rates[part * size : (part + 1) * size])) for part in range(PARTS)]


def _best(run: Mapping[str, Sequence[float]], system: str) -> str:
    """Return which of the forms of a system has the highest goodput."""
    return max((name for name in run if name.startswith(system)), key=lambda name: float(gmean(run[name])))


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
