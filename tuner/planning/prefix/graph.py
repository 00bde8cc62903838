"""A network as a graph of operations, and the hash of every sub-tree (Nexus, section 6.3).

The sub-tree of a value is everything that it is computed from: operations with their attributes, weights,
inputs. Two values with equal hashes are equal whenever the inputs are, whatever they are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["Graph", "Operation", "Weight", "digest"]


class Weight(NamedTuple):
    """A tensor that belongs to the model."""

    digest: bytes
    """Hash of its type, shape and numbers."""
    size: int
    """Bytes."""


class Operation(NamedTuple):
    """One operation on tensors."""

    kind: bytes
    """What it does, with its attributes: equal for operations that do the same."""
    inputs: tuple[str, ...]
    """Names of values, of weights or inputs; empty for an optional one that is left out."""
    outputs: tuple[str, ...]
    """Names of values; empty for an optional one that is left out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A network, whichever library it is written for."""

    name: str
    inputs: Mapping[str, bytes]
    """The type and shape of each."""
    weights: Mapping[str, Weight]
    operations: tuple[Operation, ...]
    """Each after those whose outputs it needs."""
    outputs: tuple[str, ...]
    batched: frozenset[str]
    """Values with one row for each request of the batch."""

    @cached_property
    def digests(self) -> dict[str, bytes]:
        """The hash of the sub-tree of every value."""
        found = {
            name: digest(b"input", b"%d" % i, kind) for i, (name, kind) in enumerate(self.inputs.items())
        }
        found |= {name: weight.digest for name, weight in self.weights.items()}
        found[""] = b""
        for operation in self.operations:
            subtree = digest(operation.kind, *(found[name] for name in operation.inputs))
            places = enumerate(operation.outputs)
            found |= {name: digest(b"output", b"%d" % i, subtree) for i, name in places if name}
        return found

    @cached_property
    def varying(self) -> frozenset[str]:
        """The values that depend on an input; the others are constants, like weights."""
        found = set(self.inputs)
        for operation in self.operations:
            if not found.isdisjoint(operation.inputs):
                found.update(filter(None, operation.outputs))
        return frozenset(found)

    def is_varying(self, operation: Operation) -> bool:
        """Return whether an operation depends on an input."""
        return not self.varying.isdisjoint(operation.outputs)

    def needed(self, targets: set[str], given: set[str]) -> tuple[tuple[Operation, ...], frozenset[str]]:
        """Return the operations and the weights that values are computed with, if others are given."""
        wanted, operations = targets - given, list[Operation]()
        for operation in reversed(self.operations):
            if not wanted.isdisjoint(operation.outputs):
                operations.append(operation)
                wanted |= set(operation.inputs) - given - {""}
        return tuple(reversed(operations)), frozenset(wanted & set(self.weights))

    def size(self, weights: frozenset[str]) -> int:
        """Return the bytes of some weights."""
        return sum(self.weights[name].size for name in weights)


def digest(*parts: bytes) -> bytes:
    """Return the hash of some parts; their borders count."""
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()
