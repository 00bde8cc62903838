"""Symphony beside eager in front of two Tritons, pair by pair: the same requests, the same minute.

Where two systems keep nearly the same rate, what each keeps alone says little: chance and the machine's
pauses move it by more. So both dispatchers, over the same servers, get the same requests at the same rate,
one after the other and in turns the other way round. How many more of them one answers too late says how far
its goodput lies above the other's, because the trials show how fast that number grows with the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, bootstrap, gmean, linregress, wilcoxon

from tuner.experiments.dispatch.bench import CheckingClients, dispatching, servers
from tuner.experiments.dispatch.goodput import (
    ALLOWED,
    CLIMB,
    FINE,
    MIXES,
    NEAR,
    SYSTEMS,
    Conditions,
    bad_share,
)
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row

__all__ = ["DispatchDuel", "Pair", "goodput_ratio", "pairs_near_goodput", "sign_row"]

OURS, RIVAL = "symphony", "eager"
FEWEST = 5e-4
"""Share of bad requests that counts as the least: about half a request of a trial."""
CONFIDENCE = 0.9
SEED = 0
"""Of the bootstrap."""
Share = Callable[[float, int], float]
"""Share of bad requests at a rate, requests/s of all models, in a trial, by its number."""


class Pair(NamedTuple):
    """A trial of both systems with the same requests."""

    rate: float
    """requests/s of all models"""
    ours: float
    """Share of bad requests of the model that has most of them."""
    rival: float

    @property
    def middle(self) -> float:
        """The geometric mean of both shares."""
        return float(gmean([max(self.ours, FEWEST), max(self.rival, FEWEST)]))

    @property
    def gain(self) -> float:
        """The logarithm of how many times as many of the rival's are bad."""
        return math.log(max(self.rival, FEWEST) / max(self.ours, FEWEST))


@experiment(
    name="dispatch-duel",
    title="Goodput of two Tritons with three models: symphony beside eager, pair by pair",
    minutes=40,
    live=True,
    shown=24,
)
class DispatchDuel(Experiment[Conditions, list[Pair]]):
    """Lets the rate of both go up and down together around the goodput that they have in common."""

    seconds = Scaled(6.0, quick=2.0)
    """Of one trial."""
    mixes = Scaled(("heavy", "light"), quick=("light",))
    burstiness = Scaled((1.0, 4.0), quick=(1.0,))
    first = Scaled(200.0, quick=100.0)
    """The rate that is tried first, requests/s of all models."""
    most = Scaled(4000.0, quick=130.0)
    """The highest rate that is tried, requests/s: more than two cores can serve."""
    settling = Scaled(3, quick=0)
    """Pairs after the climb, before those that count."""
    counted = Scaled(24, quick=4)

    def tasks(self) -> tuple[Conditions, ...]:
        return tuple(Conditions(mix, burstiness) for mix in self.mixes for burstiness in self.burstiness)

    def measure(self, conditions: Conditions, seed: int) -> list[Pair]:
        models = MIXES[conditions.mix]
        with ExitStack() as running:
            tritons = running.enter_context(servers(2, models))
            shares: dict[str, Share] = {}
            for system in (OURS, RIVAL):
                dispatcher = running.enter_context(dispatching(tritons, models, **SYSTEMS[system]))
                clients = CheckingClients([dispatcher.address], models)
                clients.learn(f"127.0.0.1:{tritons[0].ports.grpc}")
                shares[system] = partial(self._share, clients, conditions, seed)
            for share in shares.values():  # so that no trial is the first work of a server or dispatcher
                share(self.first, 0)
            pairs = pairs_near_goodput(shares, self.first, self.most, self.settling, self.counted)
        if (ratio := goodput_ratio(pairs)) is not None:
            words = f"{ratio.measured:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) times {RIVAL}"
            self.report(f"{conditions}: {OURS} {words}")
        return pairs

    def _share(
        self, clients: CheckingClients, conditions: Conditions, seed: int, rate: float, number: int
    ) -> float:
        share = bad_share(clients, rate, self.seconds, conditions.burstiness, seed, number)
        self.report(f"{conditions}: {number}  {rate:.0f} r/s  {100 * share:.2f} % bad")
        return share

    def rows(self, found: Answers[Conditions, list[Pair]]) -> Iterator[Row]:
        for conditions, runs in found.items():
            pairs = [pair for run in runs for pair in run]
            name = f"{conditions}: "
            yield row(f"{name}rate", [pair.rate for pair in pairs], unit="r/s")
            for who, shares in ((OURS, [p.ours for p in pairs]), (RIVAL, [p.rival for p in pairs])):
                yield row(f"{name}bad requests, {who}", [100 * one for one in shares], unit="%")
            yield _ratio_row(f"{name}goodput of {OURS} over {RIVAL}", pairs)
        yield sign_row([pair for runs in found.values() for run in runs for pair in run])

    def configuration(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "steps": [CLIMB, NEAR, FINE],
            "pairs": [self.settling, self.counted],
            "systems": {name: SYSTEMS[name] for name in (OURS, RIVAL)},
        }

    def details(self, found: Answers[Conditions, list[Pair]]) -> dict[str, Any]:
        return {
            str(conditions): [pair._asdict() for run in runs for pair in run]
            for conditions, runs in found.items()
        }


def pairs_near_goodput(
    shares: Mapping[str, Share], first: float, most: float, settling: int, counted: int
) -> list[Pair]:
    """Return trials of both systems around the rate that both of them just keep.

    A rate at which both together have few enough bad requests is raised for the next pair, another one is
    lowered by the same step (up and down: Levitt, 1971, section II). Before that it rises until one of them
    has too many.

    Args:
        shares: What to try, by the name of the system; the one that begins changes from pair to pair.
        first: The rate that is tried first.
        most: The highest that is tried.
        settling: Pairs before those that count.
        counted: Pairs that are returned.
    """
    rate = first
    while rate * CLIMB <= most and all(share(rate, 0) <= ALLOWED for share in shares.values()):
        rate *= CLIMB
    rate = max(rate / CLIMB, first)
    found: list[Pair] = []
    turn = list(shares)
    for number in range(settling + counted):
        seen = {name: shares[name](rate, number) for name in turn}
        pair = Pair(rate, seen[OURS], seen[RIVAL])
        if number >= settling:
            found.append(pair)
        step = NEAR if number < settling else FINE
        rate = min(rate * step, most) if pair.middle <= ALLOWED else rate / step
        turn.reverse()
    return found


class Ratio(NamedTuple):
    """How far the goodput of one system lies above the other's."""

    measured: float
    low: float
    high: float
    slope: float
    """Per cent more bad requests for a per cent more load."""


def goodput_ratio(pairs: Sequence[Pair]) -> Ratio | None:
    """Return the goodput of ours over the rival's, with its interval by the bootstrap over pairs.

    The logarithm of the share of bad requests grows with that of the rate by the slope of a line through the
    pairs' means. By how much the rival's shares lie above ours, over that slope, is how much more load ours
    bears with as many bad requests. None where higher rates did not have more of them.
    """
    rates = np.log([pair.rate for pair in pairs])
    middles = np.log([pair.middle for pair in pairs])
    gains = np.array([pair.gain for pair in pairs])
    slope = float(linregress(rates, middles).slope) if np.ptp(rates) and np.ptp(middles) else 0.0
    if not slope > 0.0:
        return None
    again = bootstrap((gains,), np.mean, confidence_level=CONFIDENCE, method="basic", random_state=SEED)
    low, high = np.exp(np.array(again.confidence_interval) / slope).tolist()
    return Ratio(math.exp(gains.mean() / slope), low, high, slope)


def _ratio_row(name: str, pairs: Sequence[Pair]) -> Row:
    """Compare the goodputs, with how sure that is."""
    ratio = goodput_ratio(pairs)
    if ratio is None:
        return Row(id=name, published=1.0, measured=None, note="higher rates did not have more bad requests")
    note = (
        f"target: above; {CONFIDENCE:.0%} interval; p {_by_chance(pairs):.2g} of {len(pairs)} pairs; "
        f"1 % more load is {ratio.slope:.0f} % more bad requests"
    )
    measured, low, high = (round(value, 4) for value in ratio[:3])
    return Row(id=name, published=1.0, measured=measured, low=low, high=high, note=note)


def sign_row(pairs: Sequence[Pair]) -> Row:
    """Return in how many pairs ours has fewer bad requests, of those that differ: a sign test."""
    fewer, more = (sum(sign * (p.rival - p.ours) > 0 for p in pairs) for sign in (1, -1))
    name = f"all pairs that differ: those in which {OURS} has fewer bad requests"
    if not fewer + more:
        return Row(id=name, published=50.0, measured=None, unit="%", note="none differs")
    chance = binomtest(fewer, fewer + more).pvalue
    note = f"target: above; {fewer} of {fewer + more}; p {chance:.2g} by the sign test"
    return Row(id=name, published=50.0, measured=round(100 * fewer / (fewer + more), 1), unit="%", note=note)


def _by_chance(pairs: Sequence[Pair]) -> float:
    """Return the probability of such a difference or a larger one by chance: Wilcoxon's."""
    gains = [pair.gain for pair in pairs]
    return float(wilcoxon(gains).pvalue) if any(gains) else 1.0
