"""Networks that begin alike, as ONNX models and as modules of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.fx import GraphModule

ROWS, WIDTH = 3, 6


def onnx_variant(names: str, *, body: int = 0, head: int = 0, deep: int = 1, rows: bool = True) -> ModelProto:
    """Return a residual network whose last layers depend on ``head``; its values begin with ``names``."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(body)
    constants = {"w0": rng.normal(size=(WIDTH, WIDTH)), "w1": rng.normal(size=(WIDTH, WIDTH))}
    rng = np.random.default_rng([1, head])
    constants |= {f"head{layer}": rng.normal(size=(WIDTH, WIDTH)) for layer in range(deep)}
    steps = [
        ("MatMul", ["x", "w0"], "a"),
        ("Relu", ["a"], "b"),
        ("MatMul", ["b", "w1"], "c"),
        ("Add", ["c", "b"], "d"),
        ("Shape", ["d"], "shape"),  # the same in all variants, but no row for each request
        *(("MatMul", ["d" if not i else f"e{i - 1}", f"head{i}"], f"e{i}") for i in range(deep)),
        ("Reshape", [f"e{deep - 1}", "shape"], "y"),
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, [names + one for one in used], [names + made]) for kind, used, made in steps],
        "variant",
        [helper.make_tensor_value_info(f"{names}x", TensorProto.FLOAT, ["N" if rows else 1, WIDTH])],
        [helper.make_tensor_value_info(f"{names}y", TensorProto.FLOAT, [None, WIDTH])],
        [
            numpy_helper.from_array(value.astype(np.float32), names + name)
            for name, value in constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnx_mixing(how: str, *, head: int) -> ModelProto:
    """Return a network whose first dimension is requests times tokens, or tokens, before its head ``head``.

    Args:
        how: ``Reshape`` or ``Transpose``; both leave the first dimension open.
        head: Other numbers have other weights there.
    """
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "w0": np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "head": np.random.default_rng([1, head]).normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "flat": np.array([-1, WIDTH]),
        "deep": np.array([-1, ROWS, WIDTH]),
    }
    reshapes = how == "Reshape"
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node(how, ["a", "flat"] if reshapes else ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "head"], ["c"]),
        helper.make_node(how, ["c", "deep"] if reshapes else ["c"], ["y"]),
    ]
    for node in () if reshapes else (nodes[1], nodes[3]):
        node.attribute.append(helper.make_attribute("perm", [1, 0, 2]))
    tokens = ROWS if reshapes else "S"
    graph = helper.make_graph(
        nodes,
        "mixing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", tokens, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None, WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def torch_variant(*, head: int, residual: bool = True) -> GraphModule:
    """Return a traced residual network whose last layer depends on ``head``."""
    import torch
    from torch import fx, nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
            torch.manual_seed(head + 1)
            self.head = nn.Linear(WIDTH, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.norm(self.body(x)))
            found: torch.Tensor = self.head(hidden + x if residual else hidden)
            return found

    return fx.symbolic_trace(Network().eval())


def some_rows(seed: int, count: int = ROWS) -> Sequence[np.ndarray]:
    """Return the inputs of one request."""
    return [np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)]
