"""Goodput of two Tritons with three models: the dispatcher beside the servers' own dynamic batching.

The same clients send the same requests to the dispatcher, under symphony and under eager, and to the two
servers by turns, which then batch by themselves, with several batch delays. The highest rate is searched at
which every model has 99 % of its requests answered within its SLO, counted by the clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.experiments.dispatch.bench import MODELS, Answered, CheckingClients, arrivals, dispatching, servers
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchGoodput", "bad_rates"]

ALLOWED = 0.01
"""Share of a model's requests that may be late or refused."""
WARM_UP = 3.0
"""s of load before the first trial of each system."""
SYSTEMS = ("symphony", "eager")
DELAYS_MS = (0.0, 2.0, 5.0, 10.0)
"""Batch delays of the servers' own batching; the best of them counts."""


def bad_rates(found: Sequence[Answered]) -> dict[str, float]:
    """Return the share of each model's requests that were late, refused or wrong."""
    rates = {}
    for model in MODELS:
        ones = [one for one in found if one.model == model.name]
        good = sum(one.status == "OK" and one.right and one.latency <= model.slo for one in ones)
        rates[model.name] = 1 - good / max(len(ones), 1)
    return rates


@experiment(
    name="dispatch-goodput",
    title="Goodput of two Tritons with three models: the dispatcher beside the servers' own batching",
    minutes=40,
    live=True,
)
class DispatchGoodput(Experiment[float, dict[str, float]]):
    """Searches the goodput of each system by halving, in turns over the same servers."""

    seconds = Scaled(12.0, quick=2.0)
    """Of one trial."""
    trials = Scaled(7, quick=3)
    burstiness = Scaled((1.0, 4.0), quick=(1.0,))
    delays = Scaled(DELAYS_MS, quick=(2.0,))
    most = Scaled(2400.0, quick=1200.0)
    """The highest rate that is tried, requests/s of all models."""

    def tasks(self) -> tuple[float, ...]:
        return self.burstiness

    def measure(self, burstiness: float, seed: int) -> dict[str, float]:
        found: dict[str, float] = {}
        with servers() as tritons:
            addresses = [f"127.0.0.1:{one.ports.grpc}" for one in tritons]
            direct = CheckingClients(addresses)
            direct.learn(addresses[0])
            for system in SYSTEMS:
                with dispatching(tritons, policy=system) as address:
                    clients = CheckingClients([address])
                    clients.learn(addresses[0])
                    found[system] = self._search(clients, burstiness, seed)
                self.report(f"burstiness {burstiness:g}: {system} {found[system]:.0f} r/s")
            for delay in self.delays:
                with batching(tritons, delay):
                    found[f"triton {delay:g} ms"] = self._search(direct, burstiness, seed)
                self.report(
                    f"burstiness {burstiness:g}: triton {delay:g} ms {found[f'triton {delay:g} ms']:.0f} r/s"
                )
        return found

    def _search(self, clients: CheckingClients, burstiness: float, seed: int) -> float:
        """Return the highest rate that was within the SLOs, requests/s of all models."""
        low, high = 0.0, self.most
        rate = high / 4
        # Every system warms up under the rate of its first trial: the dispatcher learns how long batches take
        # from those that it sends, and a trial that fails is not repeated.
        clients.offer(arrivals(_rates(rate), WARM_UP, seed + 1))
        for _ in range(self.trials):
            offered = arrivals(_rates(rate), self.seconds, seed, burstiness)
            bad = bad_rates(clients.offer(offered, seed=seed))
            low, high = (rate, high) if max(bad.values()) <= ALLOWED else (low, rate)
            rate = (low + high) / 2
        return low

    def rows(self, found: Answers[float, dict[str, float]]) -> Iterator[Row]:
        for burstiness, runs in found.items():
            name = f"burstiness {burstiness:g}"
            for system in runs[0]:
                yield row(f"{name}: {system}", [run[system] for run in runs], unit="r/s")
            for rival, over in (("triton", "its own batching"), ("eager", "eager")):
                ratios = [run["symphony"] / max(_best(run, rival), 1.0) for run in runs]
                yield row(f"{name}: symphony over {over}", ratios, published=1.0, note="target: above")

    def configuration(self) -> dict[str, Any]:
        return {
            "slo_ms": {one.name: one.slo * 1e3 for one in MODELS},
            "shares": {one.name: one.share for one in MODELS},
            "seconds": self.seconds,
            "trials": self.trials,
        }


def _best(run: dict[str, float], system: str) -> float:
    return max(value for name, value in run.items() if name.startswith(system))


def _rates(total: float) -> dict[str, float]:
    return {one.name: total * one.share for one in MODELS}


@contextmanager
def batching(tritons: Sequence[EmbeddedTriton], delay_ms: float) -> Iterator[None]:
    """Let the servers batch by themselves, with a delay."""
    _load(tritons, {"max_queue_delay_microseconds": round(delay_ms * 1e3)})
    try:
        yield
    finally:
        _load(tritons, None)


def _load(tritons: Sequence[EmbeddedTriton], dynamic: dict[str, int] | None) -> None:
    """Load every model with dynamic batching, or without."""
    import tritonclient.grpc as tritongrpc

    for triton in tritons:
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{triton.ports.grpc}") as client:
            for model in MODELS:
                config = client.get_model_config(model.name, as_json=True)["config"]
                config.pop("dynamic_batching", None)
                if dynamic is not None:
                    config["dynamic_batching"] = dynamic
                client.load_model(model.name, config=json.dumps(config))
