"""ONNX models as graphs, and the cut of such models into one prefix and a suffix for each.

Two operations are the same if they have the same operator, version and attributes. An operation with a body
of its own (a branch, a loop) is never taken for that of another model, as its body can use any value by its
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InvalidInput
from tuner.planning.prefix.common import CommonPrefix
from tuner.planning.prefix.graph import Graph, Operation, Weight, digest
from tuner.plugin import install_text

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto

    from tuner.planning.prefix.run import Part

__all__ = ["cut_onnx", "load_onnx", "onnx_part", "read_onnx"]


def load_onnx(path: Path) -> ModelProto:
    """Return the model of a file.

    Raises:
        InvalidInput: It is none, or onnx is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise InvalidInput(str(path), "reading ONNX models needs onnx", install_text("demo")) from None
    try:
        return onnx.load(str(path))
    except Exception as error:
        raise InvalidInput(str(path), f"cannot be read as an ONNX model: {error}") from None


def read_onnx(model: ModelProto, name: str) -> Graph:
    """Return a model as a graph.

    Raises:
        InvalidInput: Its inputs have no rows: the first dimension is a fixed number.
    """
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model).graph
    weights = {one.name: _weight(one) for one in graph.initializer}
    values = [*graph.input, *graph.value_info, *graph.output]
    batched = frozenset(one.name for one in values if _has_rows(one))
    inputs = {one.name: _signature(one) for one in graph.input if one.name not in weights}
    for one in inputs:
        if one not in batched:
            problem = f"input {one!r} has a fixed first dimension, so that requests cannot be batched"
            raise InvalidInput(name, problem, "export the model with a dynamic first dimension")
    versions = {one.domain: one.version for one in model.opset_import}
    functions = digest(*(one.SerializeToString(deterministic=True) for one in model.functions))
    known = {(one.domain, one.name) for one in model.functions}
    operations = []
    for place, node in enumerate(graph.node):
        attributes = [one.SerializeToString(deterministic=True) for one in sorted(node.attribute, key=_name)]
        own = [functions] if (node.domain, node.op_type) in known else []
        if any(_bodies(node)):
            own = [name.encode(), b"%d" % place]
        operator = f"{node.domain}:{node.op_type}:{versions.get(node.domain)}:{len(node.output)}"
        kind = digest(operator.encode(), *attributes, *own)
        operations.append(Operation(kind, (*node.input, *_captured(node)), tuple(node.output)))
    return Graph(
        name=name,
        inputs=inputs,
        weights=weights,
        operations=tuple(operations),
        outputs=tuple(one.name for one in graph.output),
        batched=batched,
    )


def cut_onnx(
    models: Sequence[ModelProto], common: CommonPrefix
) -> tuple[ModelProto | None, list[ModelProto]]:
    """Return the prefix, and the suffix of every model; the suffixes' inputs are the prefix's outputs.

    The prefix is None if nothing is shared.
    """
    suffixes = []
    for model, graph in zip(models, common.graphs, strict=True):
        names = {name: f"prefix.{place}" for name, place in common.same(graph).items()}
        suffixes.append(_part(model, graph, names, dict(zip(graph.outputs, graph.outputs, strict=True))))
    if not common.operations:
        return None, suffixes
    first = common.graphs[0]
    outputs = {name: f"prefix.{place}" for place, name in enumerate(common.names(first))}
    return _part(models[0], first, {name: name for name in first.inputs}, outputs), suffixes


def onnx_part(model: ModelProto, threads: int = 1) -> Part:
    """Return a function that executes a model with onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_inputs()]

    def execute(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return execute


def _part(model: ModelProto, graph: Graph, inputs: dict[str, str], outputs: dict[str, str]) -> ModelProto:
    """Return the part of a model between some values.

    Args:
        model: The whole model.
        graph: The model as a graph.
        inputs: Values that are given, each with the name of the input that gives it.
        outputs: Values that are wanted, each with the name of its output.
    """
    from onnx import helper, shape_inference

    operations, weights = graph.needed(set(outputs), set(inputs))
    wanted = {one.outputs for one in operations}
    whole = shape_inference.infer_shapes(model).graph
    used = {name for one in operations for name in one.inputs} | set(outputs)
    # A value that is given comes in under the input's name, and one that is wanted leaves under the
    # output's: so the operations stay as they are, with the bodies that name values of the whole.
    nodes = [
        *(
            helper.make_node("Identity", [one], [name])
            for name, one in inputs.items()
            if name in used and one != name
        ),
        *(node for node in whole.node if tuple(node.output) in wanted),
        *(helper.make_node("Identity", [name], [one]) for name, one in outputs.items() if one != name),
    ]
    found = helper.make_graph(
        nodes,
        f"{model.graph.name or 'model'}-part",
        [_renamed(whole, name, one) for one, name in {one: name for name, one in inputs.items()}.items()],
        [_renamed(whole, name, one) for name, one in outputs.items()],
        [one for one in whole.initializer if one.name in weights],
    )
    return helper.make_model(
        found, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )


def _renamed(graph: GraphProto, name: str, new: str) -> Any:
    from onnx import ValueInfoProto

    found = ValueInfoProto()
    found.CopyFrom(next(one for one in (*graph.input, *graph.value_info, *graph.output) if one.name == name))
    found.name = new
    return found


def _weight(tensor: Any) -> Weight:
    from onnx import numpy_helper

    array = numpy_helper.to_array(tensor)
    content = array.tobytes()
    shape = f"{tensor.data_type}:{array.shape}".encode()
    return Weight(digest(b"weight", shape, content), len(content))


def _has_rows(value: Any) -> bool:
    """Return whether the first dimension of a value is not a fixed number."""
    tensor = value.type.tensor_type
    return bool(
        tensor.HasField("shape") and tensor.shape.dim and not tensor.shape.dim[0].HasField("dim_value")
    )


def _signature(value: Any) -> bytes:
    tensor = value.type.tensor_type
    return f"{tensor.elem_type}:{[one.dim_value for one in tensor.shape.dim]}".encode()


def _name(attribute: Any) -> str:
    return str(attribute.name)


def _bodies(node: NodeProto) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: NodeProto) -> list[str]:
    """Return the values that the bodies of a node use from outside."""
    found = []
    for body in _bodies(node):
        inside = {one.name for one in (*body.input, *body.initializer)}
        for each in body.node:
            found += [name for name in (*each.input, *_captured(each)) if name not in inside]
            inside |= set(each.output)
        found += [one.name for one in body.output if one.name not in inside]
    return list(dict.fromkeys(found))
