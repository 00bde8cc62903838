"""Finds the prefix that networks have in common, and the networks that should share one (Nexus, section 6.3).

A prefix is a part of a network that begins at its inputs. It can be executed once, with the requests of all
networks in one batch, if the networks have it in common; what remains of each network is its suffix. Where
the prefix ends, each of its outputs must have one row for each request: the rows are dealt out to the
suffixes. An operation whose output has not (such as the shape of a tensor) is left to the suffixes.
Networks with unlike inputs have none in common, as no batch holds requests of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import InvalidInput
from tuner.planning.prefix.graph import Graph, Operation

__all__ = ["ENOUGH", "CommonPrefix", "common_prefix", "families"]

ENOUGH = 0.5
"""Part of a network's operations that are in the prefix it shares; below that it is not shared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonPrefix:
    """The prefix of some networks. It can be empty."""

    graphs: tuple[Graph, ...]
    digests: frozenset[bytes]
    """Hashes of what is computed in the prefix."""
    cut: tuple[bytes, ...]
    """Hashes of the prefix's outputs, in the order of the suffixes' inputs."""

    @property
    def operations(self) -> int:
        """How many operations are shared."""
        return sum(1 for one in _varying(self.graphs[0]) if _is_in(self.graphs[0], one, self.digests))

    @property
    def share(self) -> float:
        """The part of the operations that are shared, of the network with the most."""
        return self.operations / max(*(len(_varying(graph)) for graph in self.graphs), 1)

    def names(self, graph: Graph) -> tuple[str, ...]:
        """Return what the prefix's outputs are called in a network."""
        known: dict[bytes, str] = {}
        for name, own in graph.digests.items():
            known.setdefault(own, name)
        return tuple(known[one] for one in self.cut)

    def same(self, graph: Graph) -> dict[str, int]:
        """Return the values of a network that equal outputs of the prefix, each with that output's place."""
        places = {own: place for place, own in enumerate(self.cut)}
        found = {name: places[own] for name, own in graph.digests.items() if own in places}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    @property
    def prefix_bytes(self) -> int:
        """Of the prefix's weights."""
        first = self.graphs[0]
        return first.size(first.needed(set(self.names(first)), set(first.inputs))[1])

    def suffix_bytes(self, graph: Graph) -> int:
        """Return the bytes of the weights of a network's suffix."""
        return graph.size(graph.needed(set(graph.outputs), set(self.same(graph)))[1])


def common_prefix(graphs: Sequence[Graph]) -> CommonPrefix:
    """Return the longest prefix that all networks have.

    Raises:
        InvalidInput: Their inputs are unlike.
    """
    first = graphs[0]
    unlike = next((graph for graph in graphs if not _have_like_inputs(first, graph)), None)
    if unlike is not None:
        problem = f"has other inputs than {first.name}, so that no batch holds requests of both"
        raise InvalidInput(unlike.name, problem, "leave one of them out")
    common = frozenset.intersection(*(frozenset(graph.digests.values()) for graph in graphs))
    rows = frozenset.intersection(*map(_batched, graphs))
    while True:
        cut = {one for graph in graphs for one in _cut(graph, common)}
        if cut <= rows:
            break
        common -= cut - rows
    order = {own: place for place, own in enumerate(first.digests.values())}
    inside = frozenset(
        first.digests[name] for one in _varying(first) if _is_in(first, one, common) for name in one.outputs
    )
    return CommonPrefix(graphs=tuple(graphs), digests=inside, cut=tuple(sorted(cut, key=order.__getitem__)))


def families(graphs: Sequence[Graph], enough: float = ENOUGH) -> list[CommonPrefix]:
    """Return the networks in groups, each with the prefix that all its members share.

    One after the other, every network joins the group with which most of its operations are shared, if that
    leaves enough of them shared in the whole group; otherwise it begins a group.
    """
    groups: list[CommonPrefix] = []
    for graph in graphs:
        alike = [place for place, group in enumerate(groups) if _have_like_inputs(group.graphs[0], graph)]
        joined = {place: common_prefix([*groups[place].graphs, graph]) for place in alike}
        place = max(joined, key=lambda k: joined[k].share, default=None)
        if place is not None and joined[place].share >= enough:
            groups[place] = joined[place]
        else:
            groups.append(common_prefix([graph]))
    return groups


def _have_like_inputs(one: Graph, other: Graph) -> bool:
    return list(one.inputs.values()) == list(other.inputs.values())


def _varying(graph: Graph) -> list[Operation]:
    return [operation for operation in graph.operations if graph.is_varying(operation)]


def _is_in(graph: Graph, operation: Operation, digests: frozenset[bytes]) -> bool:
    return all(graph.digests[name] in digests for name in operation.outputs if name)


def _batched(graph: Graph) -> frozenset[bytes]:
    return frozenset(graph.digests[name] for name in graph.batched)


def _cut(graph: Graph, common: frozenset[bytes]) -> set[bytes]:
    """Return the values of the common part, and inputs, that the rest of a network needs."""
    used = set(graph.outputs)
    for operation in _varying(graph):
        if not _is_in(graph, operation, common):
            used.update(operation.inputs)
    varying = used & graph.varying
    return {graph.digests[name] for name in varying if graph.digests[name] in common}
