"""A query's graph as series and parallel parts, which is what the dynamic program over time budgets needs.

Every stage is an edge of its own between two points; reductions then replace two edges in a row by a series,
and two between the same points by a parallel part, until one edge is left. Trees and fork-join graphs
reduce, whatever their depth; a graph that does not is neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuner.errors import InvalidInput
from tuner.planning.queries.query import Query

__all__ = ["Parallel", "Part", "Series", "decompose"]


@dataclass(frozen=True, slots=True)
class Series:
    """Parts one after the other: their budgets add up."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parts side by side: each may take the whole budget."""

    parts: tuple[Part, ...]


Part = Series | Parallel | str
"""A stage is its name; a series of nothing takes no time."""


@dataclass(frozen=True, slots=True)
class _Edge:
    begin: str
    end: str
    part: Part


def decompose(query: Query) -> Part:
    """Return the whole query as one part.

    Raises:
        InvalidInput: It is neither a tree nor a fork-join graph.
    """
    edges = list(_edges(query))
    while len(edges) > 1:
        shorter = _reduced(edges)
        if len(shorter) == len(edges):
            names = ", ".join(sorted({name for edge in edges for name in _names(edge.part)})[:10])
            raise InvalidInput(
                "stages",
                f"the calls between {names} form neither a tree nor a fork-join graph",
                "let branches that fork at one stage join at one stage",
            )
        edges = shorter
    return edges[0].part


def _edges(query: Query) -> Iterator[_Edge]:
    """Every stage from the point where all its callers have answered to the point where it has."""
    for stage in query.stages:
        yield _Edge(f"before {stage.name}", f"after {stage.name}", stage.name)
        for call in stage.next:
            yield _Edge(f"after {stage.name}", f"before {call.stage}", Series(()))
        if not stage.next:
            yield _Edge(f"after {stage.name}", "end", Series(()))


def _reduced(edges: list[_Edge]) -> list[_Edge]:
    """Return the edges after all parallel reductions and as many series reductions as one pass finds."""
    merged: dict[tuple[str, str], _Edge] = {}
    for edge in edges:
        place = (edge.begin, edge.end)
        before = merged.get(place)
        merged[place] = edge if before is None else replace(edge, part=_parallel(before.part, edge.part))
    into: dict[str, list[_Edge]] = {}
    out: dict[str, list[_Edge]] = {}
    for edge in merged.values():
        into.setdefault(edge.end, []).append(edge)
        out.setdefault(edge.begin, []).append(edge)
    for point in list(into):
        if len(into[point]) == len(out.get(point, ())) == 1:
            (first,), (second,) = into.pop(point), out.pop(point)
            both = _Edge(first.begin, second.end, _series(first.part, second.part))
            out[first.begin] = [both if edge is first else edge for edge in out[first.begin]]
            into[second.end] = [both if edge is second else edge for edge in into[second.end]]
    return [edge for some in out.values() for edge in some]


def _series(first: Part, second: Part) -> Part:
    parts = (*_parts(Series, first), *_parts(Series, second))
    return parts[0] if len(parts) == 1 else Series(parts)


def _parallel(first: Part, second: Part) -> Part:
    parts = tuple(
        part for part in (*_parts(Parallel, first), *_parts(Parallel, second)) if part != Series(())
    )
    return parts[0] if len(parts) == 1 else Parallel(parts) if parts else Series(())


def _parts(kind: type[Series | Parallel], part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, kind) else (part,)


def _names(part: Part) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    else:
        for inner in part.parts:
            yield from _names(inner)
