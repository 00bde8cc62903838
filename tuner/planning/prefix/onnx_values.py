"""The values of an ONNX model: in which order they are computed, their shapes, and which have a row each.

A dimension that a model's file leaves open need not be the requests: it is a sequence after a transposition,
or requests times tokens after some reshapings. So shapes are inferred for two numbers of requests, and a
value has a row for each request if its first dimension is that number both times. Where a shape cannot be
inferred, such as behind an operator that onnx does not know, it has not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.errors import InvalidInput

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

__all__ = ["bodies", "has_rows", "in_order", "inferred", "needed_by", "with_rows"]

ROWS = (1009, 2003)
"""Requests of the two batches: primes, so that no other dimension is equal by chance."""
SMALL = 128
"""Numbers in an initializer that shapes may depend on, such as one that is a shape itself."""


def with_rows(model: ModelProto, name: str) -> frozenset[str]:
    """Return the values that have one row for each request, if all inputs have.

    Raises:
        InvalidInput: See :func:`inferred`.
    """
    found = [inferred(model, name, rows) for rows in ROWS]
    same = set.intersection(*(set(values) for values in found))
    return frozenset(
        one
        for one in same
        if all(_first(values[one]) == rows for values, rows in zip(found, ROWS, strict=True))
    )


def inferred(model: ModelProto, name: str, rows: int | None = None) -> dict[str, ValueInfoProto]:
    """Return the type and shape of every value for which they are known.

    Args:
        model: Its large weights take no part, so that it may be larger than a message of protobuf.
        name: What messages call it.
        rows: The first dimension of all inputs, in place of the file's. What the file says of other shapes
            does not count then.

    Raises:
        InvalidInput: It is damaged, so that nothing can be inferred.
    """
    from onnx import shape_inference

    light = _light(model, name)
    if rows is not None:
        weights = {one.name for one in model.graph.initializer}
        light.graph.ClearField("value_info")
        for value in light.graph.output:
            if _dims(value):
                _dims(value)[0].Clear()
        for value in light.graph.input:
            if value.name not in weights and _dims(value):
                _dims(value)[0].dim_value = rows
    try:
        graph = shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception as error:
        raise InvalidInput(name, f"the shapes of its values cannot be inferred: {error}") from None
    return {one.name: one for one in (*graph.input, *graph.value_info, *graph.output)}


def has_rows(value: ValueInfoProto) -> bool:
    """Return whether the first dimension of a value is not a fixed number."""
    return bool(_dims(value)) and not _dims(value)[0].HasField("dim_value")


def in_order(graph: GraphProto, name: str) -> list[NodeProto]:
    """Return the nodes, each after those whose outputs it needs.

    Args:
        graph: Its nodes may have any order, as onnxruntime takes them.
        name: What messages call the model.

    Raises:
        InvalidInput: A value is needed that nothing makes, or nodes need each other's.
    """
    known = {"", *(one.name for one in graph.input), *(one.name for one in graph.initializer)}
    found: list[NodeProto] = []
    left = list(graph.node)
    while left:
        waiting: list[NodeProto] = []
        for node in left:
            if known.issuperset(needed_by(node)):
                found.append(node)
                known.update(node.output)
            else:
                waiting.append(node)
        if len(waiting) == len(left):
            made = {one for node in left for one in node.output}
            missing = [one for node in left for one in needed_by(node) if one not in known]
            nothing = next((one for one in missing if one not in made), None)
            problem = "nodes need each other's outputs" if nothing is None else f"nothing makes {nothing!r}"
            raise InvalidInput(name, problem, "export the model again")
        left = waiting
    return found


def needed_by(node: NodeProto) -> tuple[str, ...]:
    """Return the values that a node needs: its inputs, and what its bodies use from outside."""
    return (*node.input, *_captured(node))


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Return the branches of a condition, or the body of a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: NodeProto) -> list[str]:
    found = list[str]()
    for body in bodies(node):
        inside = {one.name for one in body.input} | {one.name for one in body.initializer}
        inside.update(one.values.name for one in body.sparse_initializer)
        inside.update(name for each in body.node for name in each.output)
        used = [*(name for each in body.node for name in needed_by(each)), *(one.name for one in body.output)]
        found += [name for name in used if name not in inside]
    return list(dict.fromkeys(found))


def _light(model: ModelProto, name: str) -> ModelProto:
    """Return a model whose large weights are inputs, with nodes in order."""
    from onnx import helper

    graph = model.graph
    known = {one.name for one in graph.input}
    large = {one.name: one for one in graph.initializer if math.prod(one.dims) > SMALL}
    inputs = [
        helper.make_tensor_value_info(one.name, one.data_type, one.dims)
        for one in large.values()
        if one.name not in known
    ]
    light = helper.make_graph(
        in_order(graph, name),
        graph.name,
        [*graph.input, *inputs],
        graph.output,
        [one for one in graph.initializer if one.name not in large],
        value_info=graph.value_info,
    )
    return helper.make_model(
        light, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )


def _dims(value: ValueInfoProto) -> Any:
    """Return the dimensions of a value; empty if it is no tensor, has none, or they are not known."""
    return value.type.tensor_type.shape.dim


def _first(value: ValueInfoProto) -> int | None:
    dims = _dims(value)
    return int(dims[0].dim_value) if dims and dims[0].HasField("dim_value") else None
