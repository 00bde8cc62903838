"""ONNX models as graphs, and the cut of such models into one prefix and a suffix for each.

Two operations are the same if they have the same operator, version and attributes. An operation with a body
of its own (a branch, a loop) is never taken for that of another model, as its body can use any value by its
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InvalidInput
from tuner.planning.prefix.common import CommonPrefix
from tuner.planning.prefix.graph import Graph, Operation, Weight, digest
from tuner.planning.prefix.onnx_values import bodies, has_rows, in_order, inferred, needed_by, with_rows
from tuner.plugin import install_text
from tuner.printable import one_line

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, ValueInfoProto

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
        InvalidInput: Its inputs have no rows: the first dimension is a fixed number. Or it is damaged, or has
            sparse weights.
    """
    graph = model.graph
    for sparse in graph.sparse_initializer:
        problem = f"initializer {sparse.values.name!r} is sparse, which cannot be read"
        raise InvalidInput(name, problem, "export the model with dense ones")
    weights = {one.name: _weight(one, name) for one in graph.initializer}
    values = [one for one in graph.input if one.name not in weights]
    for one in values:
        if not has_rows(one):
            problem = f"input {one.name!r} has a fixed first dimension, so that requests cannot be batched"
            raise InvalidInput(name, problem, "export the model with a dynamic first dimension")
    versions = {one.domain: one.version for one in model.opset_import}
    functions = digest(*(one.SerializeToString(deterministic=True) for one in model.functions))
    known = {(one.domain, one.name) for one in model.functions}
    operations = []
    for place, node in enumerate(in_order(graph, name)):
        attributes = [one.SerializeToString(deterministic=True) for one in sorted(node.attribute, key=_name)]
        own = [functions] if (node.domain, node.op_type) in known else []
        if any(bodies(node)):
            own = [name.encode(), b"%d" % place]
        operator = f"{node.domain}:{node.op_type}:{versions.get(node.domain)}:{len(node.output)}"
        kind = digest(operator.encode(), *attributes, *own)
        operations.append(Operation(kind, needed_by(node), tuple(node.output)))
    return Graph(
        name=name,
        inputs={one.name: _signature(one) for one in values},
        weights=weights,
        operations=tuple(operations),
        outputs=tuple(one.name for one in graph.output),
        batched=with_rows(model, name),
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


def onnx_part(model: ModelProto) -> Part:
    """Return a function that executes a model with onnxruntime on the CPU, in one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
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
    from onnx import helper

    operations, weights = graph.needed(set(outputs), set(inputs))
    wanted = {one.outputs for one in operations}
    types = inferred(model, graph.name)
    used = {name for one in operations for name in one.inputs} | set(outputs)
    # A value that is given comes in under the input's name, and one that is wanted leaves under the
    # output's: so the operations stay as they are, with the bodies that name values of the whole.
    nodes = [
        *(
            helper.make_node("Identity", [one], [name])
            for name, one in inputs.items()
            if name in used and one != name
        ),
        *(node for node in in_order(model.graph, graph.name) if tuple(node.output) in wanted),
        *(helper.make_node("Identity", [name], [one]) for name, one in outputs.items() if one != name),
    ]
    found = helper.make_graph(
        nodes,
        f"{model.graph.name or 'model'}-part",
        [_renamed(types[name], one) for one, name in {one: name for name, one in inputs.items()}.items()],
        [_renamed(types[name], one) for name, one in outputs.items()],
        [one for one in model.graph.initializer if one.name in weights],
    )
    return helper.make_model(
        found, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )


def _renamed(value: ValueInfoProto, new: str) -> ValueInfoProto:
    from onnx import ValueInfoProto

    found = ValueInfoProto()
    found.CopyFrom(value)
    found.name = new
    return found


def _weight(tensor: Any, model: str) -> Weight:
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # onnx checks little of it before numpy fails, in many ways
        problem = f"initializer {tensor.name!r} is damaged: {one_line(str(error), 200)}"
        raise InvalidInput(model, problem, "export the model again") from None
    content = array.tobytes()
    shape = f"{tensor.data_type}:{array.shape}".encode()
    return Weight(digest(b"weight", shape, content), len(content))


def _signature(value: Any) -> bytes:
    tensor = value.type.tensor_type
    return f"{tensor.elem_type}:{[one.dim_value for one in tensor.shape.dim]}".encode()


def _name(attribute: Any) -> str:
    return str(attribute.name)
