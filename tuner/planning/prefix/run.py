"""Executes one batch of requests for several networks: the prefix once, then each network's suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

__all__ = ["Part", "PrefixBatch", "PrefixRequest"]

Part = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Executes a part of a network: its inputs in, its outputs out, each with a row for each request."""


class PrefixRequest(NamedTuple):
    """What one client asks."""

    network: str
    inputs: Sequence[np.ndarray]
    """In the network's order; each with one or more rows."""


class PrefixBatch:
    """Several networks that share a prefix.

    Args:
        prefix: Executed once for the whole batch; None if nothing is shared.
        suffixes: By network; each is executed once for the rows of its own requests.
    """

    def __init__(self, prefix: Part | None, suffixes: Mapping[str, Part]) -> None:
        self._prefix = prefix
        self._suffixes = suffixes

    def run(self, requests: Sequence[PrefixRequest]) -> list[list[np.ndarray]]:
        """Return the outputs of every request, as if its network had executed it alone."""
        order = sorted(range(len(requests)), key=lambda k: requests[k].network)
        values = [np.concatenate(some) for some in zip(*(requests[k].inputs for k in order), strict=True)]
        if self._prefix is not None:
            values = self._prefix(values)
        rows = [len(requests[k].inputs[0]) for k in order]
        begins = np.cumsum([0, *rows])  # (n+1,) of each request's rows in the batch
        answers: list[list[np.ndarray]] = [[] for _ in requests]
        for network, some in groupby(range(len(order)), key=lambda place: requests[order[place]].network):
            own = list(some)
            first, end = begins[own[0]], begins[own[-1] + 1]
            outputs = self._suffixes[network]([value[first:end] for value in values])
            for place in own:
                mine = slice(begins[place] - first, begins[place + 1] - first)
                answers[order[place]] = [output[mine] for output in outputs]
        return answers
