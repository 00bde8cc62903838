"""Which accelerator gets which node of a round: by what it has loaded, or at random (course report, 4.4.3).

A model that an accelerator keeps from the round before is a hit; each other is a swap, and is loaded. By
locality a node goes where most of its models are already: an assignment with the most hits (the report's
table does the same for one model on each accelerator).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

__all__ = ["PLACEMENT_RULES", "PlacedRound", "PlacementRule", "place_round"]

PlacementRule = Literal["locality", "random"]
PLACEMENT_RULES: tuple[PlacementRule, ...] = get_args(PlacementRule)


LOST = 1e-6
"""What each model of an accelerator counts beside a hit: of equal places those with few models are taken."""


class PlacedRound(NamedTuple):
    """What a round did to the accelerators."""

    loaded: list[frozenset[str]]
    """The models of each accelerator afterwards; one that is not used keeps what it has."""
    hits: int
    swaps: int
    seconds: float
    """Loading, of all accelerators together."""

    @property
    def hit_rate(self) -> float:
        """Share of the models that were there already; 0 if none was placed."""
        return self.hits / (self.hits + self.swaps) if self.hits + self.swaps else 0.0


def place_round(
    rule: PlacementRule,
    nodes: Sequence[frozenset[str]],
    before: Sequence[frozenset[str]],
    load_seconds: dict[str, float],
    generator: np.random.Generator,
) -> PlacedRound:
    """Place the models of each node on an accelerator.

    Args:
        rule: By locality, or at random.
        nodes: The models of each node; at most as many as there are accelerators.
        before: The models that each accelerator has.
        load_seconds: Of each model.
        generator: For the random rule.
    """
    if rule == "random":
        places = generator.permutation(len(before))[: len(nodes)].tolist()
    else:
        from scipy.optimize import linear_sum_assignment

        kept = np.array([[len(models & there) for there in before] for models in nodes], float)
        kept = kept.reshape(len(nodes), len(before)) - LOST * np.array([len(there) for there in before])
        places = linear_sum_assignment(-kept)[1].tolist()
    loaded, hits, swaps, seconds = list(before), 0, 0, 0.0
    for models, place in zip(nodes, places, strict=True):
        new = models - before[place]
        hits, swaps = hits + len(models) - len(new), swaps + len(new)
        seconds += sum(load_seconds[model] for model in new)
        loaded[place] = models
    return PlacedRound(loaded, hits, swaps, seconds)
