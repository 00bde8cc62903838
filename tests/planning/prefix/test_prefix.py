"""Prefix batching: what networks have in common, and that sharing it changes no answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.planning.prefix.networks import ROWS, WIDTH, onnx_mixing, onnx_variant, some_rows, torch_variant
from tuner.errors import InvalidInput
from tuner.planning.prefix import Graph, Operation, PrefixBatch, PrefixRequest, common_prefix, families
from tuner.planning.prefix.fx_module import cut_fx, fx_part, read_fx
from tuner.planning.prefix.onnx_model import cut_onnx, onnx_part, read_onnx
from tuner.planning.prefix.run import Part

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto
    from torch.fx import GraphModule

REQUESTS = [PrefixRequest(name, some_rows(seed, 1 + seed % 2)) for seed, name in enumerate("abcab")]


def assert_same_answers(
    batch: PrefixBatch, alone: dict[str, Part], requests: Sequence[PrefixRequest] = REQUESTS
) -> None:
    """Every request is answered as its own network answers it alone."""
    for request, answer in zip(requests, batch.run(requests), strict=True):
        expected = alone[request.network](request.inputs)

        assert len(expected) == len(answer)
        for one, other in zip(expected, answer, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_onnx_variants_share_all_but_their_heads() -> None:
    """Whatever their values are called; the shape, which has no row for each request, stays in the suffix."""
    models = {name: onnx_variant(name, head=place, deep=1 + place) for place, name in enumerate("abc")}
    graphs = [read_onnx(model, name) for name, model in models.items()]

    common = common_prefix(graphs)
    prefix, suffixes = cut_onnx(list(models.values()), common)

    assert common.operations == 4
    assert common.names(graphs[1]) == ("bd",)
    assert common.prefix_bytes == 2 * 6 * 6 * 4
    assert [common.suffix_bytes(graph) for graph in graphs] == [144, 288, 432]
    assert prefix is not None
    parts = {name: onnx_part(suffix) for name, suffix in zip(models, suffixes, strict=True)}
    alone = {name: onnx_part(model) for name, model in models.items()}
    assert_same_answers(PrefixBatch(onnx_part(prefix), parts), alone)


@pytest.mark.parametrize("how", ["Reshape", "Transpose"])
def test_an_onnx_prefix_ends_where_rows_are_requests(how: str) -> None:
    """And not where the first dimension is merely open: requests times tokens, or the tokens."""
    models = {name: onnx_mixing(how, head=place) for place, name in enumerate("abc")}
    graphs = [read_onnx(model, name) for name, model in models.items()]

    common = common_prefix(graphs)
    prefix, suffixes = cut_onnx(list(models.values()), common)

    assert common.names(graphs[0]) == ("a",)
    assert prefix is not None
    parts = {name: onnx_part(suffix) for name, suffix in zip(models, suffixes, strict=True)}
    alone = {name: onnx_part(model) for name, model in models.items()}
    requests = [
        PrefixRequest(name, [some_rows(seed, (1 + seed % 2) * ROWS)[0].reshape(-1, ROWS, WIDTH)])
        for seed, name in enumerate("abcab")
    ]
    assert_same_answers(PrefixBatch(onnx_part(prefix), parts), alone, requests)


def test_equal_onnx_models_are_all_prefix() -> None:
    """Their suffixes hand the prefix's output on."""
    models = [onnx_variant(name) for name in "ab"]
    graphs = [read_onnx(model, name) for model, name in zip(models, "ab", strict=True)]

    common = common_prefix(graphs)
    prefix, suffixes = cut_onnx(models, common)

    assert common.share == 1
    assert prefix is not None
    (answer,) = onnx_part(prefix)(some_rows(1))
    (expected,) = onnx_part(models[0])(some_rows(1))
    np.testing.assert_array_equal(onnx_part(suffixes[1])([answer])[0], expected)


def test_torch_modules_share_all_but_their_heads() -> None:
    """The same, of torch.fx graphs with modules, functions and operators."""
    modules = {name: torch_variant(head=place) for place, name in enumerate("abc")}
    example = _tensors(some_rows(0, 2))
    graphs = [read_fx(module, name, example) for name, module in modules.items()]

    common = common_prefix(graphs)
    prefix, suffixes = cut_fx(list(modules.values()), common)

    assert common.operations == 4
    assert [common.suffix_bytes(graph) for graph in graphs] == [(6 * 2 + 2) * 4] * 3
    assert prefix is not None
    parts = {name: fx_part(suffix) for name, suffix in zip(modules, suffixes, strict=True)}
    batch = PrefixBatch(fx_part(prefix), parts)
    assert_same_answers(batch, {name: _whole(module) for name, module in modules.items()})


def test_networks_are_grouped_by_what_they_share() -> None:
    """A network with other weights, or another graph, has a family of its own."""
    kinds = {"a": 0, "b": 1, "c": 0}
    graphs = [read_onnx(onnx_variant(name, body=body, head=ord(name)), name) for name, body in kinds.items()]

    groups = families(graphs)

    assert [[graph.name for graph in group.graphs] for group in groups] == [["a", "c"], ["b"]]
    assert common_prefix(graphs).operations == 0
    assert cut_onnx([onnx_variant(name) for name in "ab"], common_prefix(graphs[:2]))[0] is None


def test_networks_with_unlike_inputs_share_nothing() -> None:
    """The mask of one is no input of the prefix, and what is cut there would lack it."""

    def graph_of(name: str, *inputs: str) -> Graph:
        trunk, head = Operation(b"relu", ("x",), ("y",)), Operation(name.encode(), ("y", *inputs[1:]), ("z",))
        return Graph(
            name=name,
            inputs={one: one.encode() for one in inputs},
            weights={},
            operations=(trunk, head),
            outputs=("z",),
            batched=frozenset({*inputs, "y", "z"}),
        )

    graphs = [graph_of("plain", "x"), graph_of("masked", "x", "mask"), graph_of("other", "x")]

    groups = families(graphs)

    assert [[graph.name for graph in group.graphs] for group in groups] == [["plain", "other"], ["masked"]]
    with pytest.raises(InvalidInput, match="masked: has other inputs than plain, so that no batch"):
        common_prefix(graphs)


def test_an_output_that_is_left_out_is_nobodys_input() -> None:
    """An operation with an optional output left out is not needed for one with an optional input left out."""
    recurrent, clip = Operation(b"gru", ("x",), ("", "state")), Operation(b"clip", ("state", ""), ("y",))
    clipped = Operation(b"clip", ("x", ""), ("y",))

    def graph_of(*operations: Operation) -> Graph:
        inputs, batched = {"x": b"float"}, frozenset({"x", "state", "y"})
        return Graph(
            name="any", inputs=inputs, weights={}, operations=operations, outputs=("y",), batched=batched
        )

    graph = graph_of(recurrent, clip)

    assert graph.needed({"y"}, {"state"}) == ((clip,), frozenset())
    assert graph.varying == {"x", "state", "y"}
    assert graph_of(clipped).digests["y"] == graph_of(recurrent, clipped).digests["y"]


@pytest.mark.parametrize("rows", [[], [2], [2, 3], [2, 0], [2, 2, 2]])
def test_an_example_that_is_no_batch_is_refused(rows: list[int]) -> None:
    """It needs each input, and as many rows of each; torch and Python said so in words of their own."""
    from torch import fx, nn, ones, tensor

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    module = fx.symbolic_trace(Sum())

    assert read_fx(module, "sum", [ones(2, 1), ones(2, 1)]).batched == {"x", "y", "add"}
    with pytest.raises(InvalidInput, match=r"sum: the example has \[.*\] rows; give two rows of each input"):
        read_fx(module, "sum", [ones(count, 1) for count in rows])
    with pytest.raises(InvalidInput, match=r"has \[2, 0\] rows"):
        read_fx(module, "sum", [ones(2, 1), tensor(1.0)])


def test_another_structure_ends_the_prefix() -> None:
    """The sum of one module is not the other's value."""
    example = _tensors(some_rows(0, 2))
    graphs = [read_fx(torch_variant(head=0, residual=each), str(each), example) for each in (True, False)]

    assert common_prefix(graphs).operations == 3


@pytest.mark.parametrize(
    ("kind", "given", "other"),
    [
        ("TransformerEncoderLayer", {"d_model": 6, "nhead": 2}, {"activation": "gelu"}),
        ("TransformerEncoderLayer", {"d_model": 6, "nhead": 2}, {"nhead": 3}),
        ("AvgPool1d", {"kernel_size": 3, "padding": 1}, {"count_include_pad": False}),
    ],
)
def test_modules_with_other_settings_are_not_the_same(
    kind: str, given: dict[str, object], other: dict[str, object]
) -> None:
    """Though their weights are, and torch does not print the setting; those with equal settings are."""
    from torch import fx, manual_seed, nn

    graphs = []
    for settings in (given, given, {**given, **other}):
        manual_seed(0)
        network = fx.symbolic_trace(nn.Sequential(getattr(nn, kind)(**settings)).eval())
        graphs.append(read_fx(network, "", _tensors(some_rows(0, 2))))

    assert common_prefix(graphs[:2]).operations == 1
    assert common_prefix(graphs[1:]).operations == 0


def test_large_weights_take_no_part_in_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx takes models of less than 2 GiB there, and reads larger ones with their weights in other files."""
    from onnx import shape_inference

    sizes: list[int] = []
    infer = shape_inference.infer_shapes

    def watch(model: ModelProto, **options: bool) -> ModelProto:
        sizes.extend(math.prod(one.dims) for one in model.graph.initializer)
        return infer(model, **options)

    monkeypatch.setattr("tuner.planning.prefix.onnx_values.SMALL", 10)
    monkeypatch.setattr(shape_inference, "infer_shapes", watch)
    models = [onnx_mixing("Reshape", head=head) for head in range(2)]
    graphs = [read_onnx(model, str(head)) for head, model in enumerate(models)]
    common = common_prefix(graphs)
    cut_onnx(models, common)

    assert common.names(graphs[0]) == ("a",)
    assert 0 < max(sizes) <= 10


def test_a_model_without_rows_is_refused() -> None:
    """Requests to it cannot be batched at all."""
    with pytest.raises(InvalidInput, match="input 'ax' has a fixed first dimension"):
        read_onnx(onnx_variant("a", rows=False), "a")


def test_damaged_weights_are_refused() -> None:
    """With the model and the weight: their content has not the size that their shape asks for."""
    model = onnx_variant("a")
    model.graph.initializer[1].raw_data = b"12345"

    with pytest.raises(InvalidInput, match=r"m: initializer 'aw1' is damaged: .*; export the model again"):
        read_onnx(model, "m")


def _tensors(values: Sequence[np.ndarray]) -> list[torch.Tensor]:
    import torch

    return [torch.from_numpy(value) for value in values]


def _whole(module: GraphModule) -> Part:
    return lambda inputs: [module(*_tensors(inputs)).detach().numpy()]
