"""torch.fx graphs as graphs of operations, and their cut into one prefix and a suffix for each.

Two calls are the same if they call the same function with the same constants, or modules of ``torch.nn`` with
the same class, settings and weights. Any other module is only ever the same as itself.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.prefix.common import CommonPrefix
from tuner.planning.prefix.graph import Graph, Operation, Weight, digest

if TYPE_CHECKING:
    import torch
    from torch import fx

    from tuner.planning.prefix.run import Part

__all__ = ["cut_fx", "fx_part", "read_fx"]


def read_fx(module: fx.GraphModule, name: str, example: Sequence[torch.Tensor]) -> Graph:
    """Return a traced module as a graph.

    Args:
        module: Traced, in the mode in which it will be executed.
        name: Of the network.
        example: Inputs with two rows each: executing them shows which values have a row for each request.

    Raises:
        InvalidInput: The example is no batch for the module.
    """
    _check_batch(module, name, example)
    inputs, weights, operations = dict[str, bytes](), dict[str, Weight](), list[Operation]()
    outputs: tuple[str, ...] = ()
    modules = dict(module.named_modules())
    for node in module.graph.nodes:
        used = tuple(one.name for one in node.all_input_nodes)
        if node.op == "placeholder":
            tensor = example[len(inputs)]
            inputs[node.name] = f"{tensor.dtype}:{tuple(tensor.shape[1:])}".encode()
        elif node.op == "get_attr":
            weights[node.name] = _weight(operator.attrgetter(node.target)(module))
        elif node.op == "output":
            outputs = used
        elif node.op == "call_module":
            called = modules[node.target]
            own = {f"{node.name}.{key}": _weight(value) for key, value in called.state_dict().items()}
            weights |= own
            operations.append(Operation(_kind(node, _settings(called)), (*used, *own), (node.name,)))
        else:
            operations.append(Operation(_kind(node, _function(node.target)), used, (node.name,)))
    return Graph(
        name=name,
        inputs=inputs,
        weights=weights,
        operations=tuple(operations),
        outputs=outputs,
        batched=_batched(module, example),
    )


def cut_fx(
    modules: Sequence[fx.GraphModule], common: CommonPrefix
) -> tuple[fx.GraphModule | None, list[fx.GraphModule]]:
    """Return the prefix, and the suffix of every module; the suffixes' inputs are the prefix's outputs.

    The prefix is None if nothing is shared.
    """
    suffixes = []
    for module, graph in zip(modules, common.graphs, strict=True):
        suffixes.append(_part(module, graph, common.same(graph), len(common.cut), graph.outputs))
    if not common.operations:
        return None, suffixes
    first = common.graphs[0]
    inputs = {name: place for place, name in enumerate(first.inputs)}
    return _part(modules[0], first, inputs, len(inputs), common.names(first)), suffixes


def fx_part(module: fx.GraphModule) -> Part:
    """Return a function that executes a module."""
    import torch

    def execute(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.inference_mode():
            found = module(*(torch.from_numpy(value) for value in inputs))
        return [value.numpy() for value in found]

    return execute


def _part(
    module: fx.GraphModule, graph: Graph, given: Mapping[str, int], inputs: int, outputs: Sequence[str]
) -> fx.GraphModule:
    """Return the part of a module between values that are given, each by one of the inputs, and outputs."""
    from torch import fx

    operations, weights = graph.needed(set(outputs), set(given))
    wanted = {one.outputs[0] for one in operations} | weights
    part = fx.Graph()
    placeholders = [part.placeholder(f"input_{place}") for place in range(inputs)]
    copies = {}
    for node in module.graph.nodes:
        if node.name in given:
            copies[node] = placeholders[given[node.name]]
        elif node.name in wanted:
            copies[node] = part.node_copy(node, copies.__getitem__)
    named = {node.name: copy for node, copy in copies.items()}
    part.output([named[name] for name in outputs])
    return fx.GraphModule(module, part)


def _kind(node: fx.Node, what: bytes) -> bytes:
    """Return the hash of a call: what is called, and its constants with the places of its inputs."""
    from torch.fx.node import map_arg

    places = {one: f"%{place}" for place, one in enumerate(node.all_input_nodes)}
    arguments = map_arg((node.args, dict(node.kwargs)), places.__getitem__)
    return digest(node.op.encode(), what, repr(arguments).encode())


def _settings(module: torch.nn.Module) -> bytes:
    """Return what a module computes, but for its weights: its settings, and those of the modules in it.

    Settings are its attributes, because `extra_repr` leaves some out, such as the heads of an attention.
    """
    found = []
    for name, part in module.named_modules():
        kind = type(part)
        own = sorted((key, repr(value)) for key, value in vars(part).items() if not key.startswith("_"))
        same = kind.__module__.startswith("torch.nn.")
        found.append((name, kind.__module__, kind.__qualname__, own, None if same else id(part)))
    return repr(found).encode()


def _function(target: Any) -> bytes:
    """Return the name of a function; one without a name of its own is only the same as itself."""
    if isinstance(target, str):
        return target.encode()
    name = f"{target.__module__}.{target.__qualname__}"
    return (f"{name}:{id(target)}" if "<" in name else name).encode()


def _weight(value: Any) -> Weight:
    import torch

    if not isinstance(value, torch.Tensor):
        raise InvalidInput("module", f"has an attribute that is no tensor: {value!r:.60}")
    content = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    shape = f"{value.dtype}:{tuple(value.shape)}".encode()
    return Weight(digest(b"weight", shape, content), len(content))


def _check_batch(module: fx.GraphModule, name: str, example: Sequence[torch.Tensor]) -> None:
    """Raise InvalidInput unless there is a tensor for each input, all with as many rows."""
    wanted = sum(node.op == "placeholder" for node in module.graph.nodes)
    rows = [len(value) if value.ndim else 0 for value in example]
    if len(rows) != wanted or 0 in rows or len(set(rows)) != 1:
        problem = f"the example has {rows} rows"
        raise InvalidInput(name, problem, f"give two rows of each input, of which there are {wanted}")


def _batched(module: fx.GraphModule, example: Sequence[torch.Tensor]) -> frozenset[str]:
    """Return the values that have as many rows as the inputs, with two rows and with three."""
    import torch

    longer = [torch.cat([value, value[:1]]) for value in example]
    found = [_with_rows(module, inputs) for inputs in (example, longer)]
    return frozenset(found[0] & found[1])


def _with_rows(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> set[str]:
    import torch
    from torch import fx

    found = set()

    class Watching(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            has_rows = isinstance(value, torch.Tensor) and value.ndim and len(value) == len(inputs[0])
            if has_rows and n.op != "output":
                found.add(n.name)
            return value

    with torch.inference_mode():
        Watching(module).run(*inputs)
    return found
