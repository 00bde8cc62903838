"""Nexus, Figure 15: throughput and memory of variants of one network, with and without prefix batching.

The paper has variants of ResNet-50 on a GPU. Ours are variants of a network of wide layers, executed by
onnxruntime on one core of a CPU, where batches gain for the same reason: the weights are read once for the
whole batch. All variants share the body, and have one to three fully connected layers of their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.packing.plan import MIB
from tuner.planning.prefix import PrefixBatch, PrefixRequest, common_prefix
from tuner.planning.prefix.run import Part
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["PrefixVariants"]

INPUTS, WIDTH, OUTPUTS = 256, 2048, 100
DEPTH = 3
"""Wide layers of the body, after the first."""
SLOS = (0.025, 0.05, 0.1)
"""s; the paper's is not published."""
SHOWN = 0.05
"""s, that of the figure."""
BATCHES = (1, 2, 4, 8, 16, 32, 64)
REPEATS = 3
PUBLISHED = 110.0
"""% more throughput, at most."""
How = Literal["shared", "separate"]


class Variants(NamedTuple):
    """What is served."""

    how: How
    number: int
    """How many variants there are."""
    layers: int
    """Fully connected layers of each variant's own."""


class Served(NamedTuple):
    """What came of it."""

    throughput: dict[float, float]
    """requests/s within each SLO; empty where only the memory is of interest."""
    memory: float
    """MiB of weights."""
    difference: float
    """Of the answers from those of the whole models, at most, relative to the largest."""


@experiment(
    name="nexus-fig15",
    title="Variants of one network with and without prefix batching",
    paper="Nexus",
    minutes=5,
)
class PrefixVariants(Experiment[Variants, Served]):
    """Executes batches of requests for all variants."""

    counts = Scaled((1, 2, 4, 7, 10), quick=(1, 3))
    batches = Scaled(BATCHES, quick=(1, 4))
    width = Scaled(WIDTH, quick=64)

    def tasks(self) -> list[Variants]:
        kinds: list[tuple[How, int]] = [("separate", 1), ("shared", 1), ("shared", 2), ("shared", 3)]
        return [Variants(how, count, layers) for count in self.counts for how, layers in kinds]

    def alone(self, _: Variants) -> bool:
        return True

    def measure(self, task: Variants, seed: int) -> Served:
        from tuner.planning.prefix.onnx_model import cut_onnx, onnx_part, read_onnx

        names = [f"variant-{place}" for place in range(task.number)]
        models = [variant(self.width, task.layers, place, seed) for place in range(task.number)]
        graphs = [read_onnx(model, name) for model, name in zip(models, names, strict=True)]
        common = common_prefix(graphs)
        memory = (common.prefix_bytes + sum(map(common.suffix_bytes, graphs))) / MIB
        if task.layers > 1:
            return Served({}, memory, 0.0)
        wholes = {name: onnx_part(model) for name, model in zip(names, models, strict=True)}
        if task.how == "separate":
            sizes = [graph.size(frozenset(graph.weights)) for graph in graphs]
            return Served(self._separate(wholes, seed), sum(sizes) / MIB, 0.0)
        prefix, suffixes = cut_onnx(models, common)
        assert prefix is not None
        parts = {name: onnx_part(suffix) for name, suffix in zip(names, suffixes, strict=True)}
        batch = PrefixBatch(onnx_part(prefix), parts)
        difference = _difference(batch, wholes, requests(names, max(self.batches), seed))
        return Served(self._shared(batch, names, seed), memory, difference)

    def _separate(self, wholes: dict[str, Part], seed: int) -> dict[float, float]:
        """Return the throughput of one accelerator that goes through the models, a batch of each."""
        best = dict.fromkeys(SLOS, 0.0)
        for size in self.batches:
            pixels = requests(["one"], 1, seed, rows=size)[0].inputs
            cycle = _seconds(lambda pixels=pixels: [whole(pixels) for whole in wholes.values()])
            # A request waits for a cycle at most, and then for its own batch.
            _keep_best(best, cycle * (1 + 1 / len(wholes)), len(wholes) * size / cycle)
        return best

    def _shared(self, batch: PrefixBatch, names: Sequence[str], seed: int) -> dict[float, float]:
        """Return the throughput of one accelerator that executes one batch of all after the other."""
        best = dict.fromkeys(SLOS, 0.0)
        for size in self.batches:
            some = requests(names, size, seed)
            seconds = _seconds(lambda some=some: batch.run(some))
            _keep_best(best, 2 * seconds, size / seconds)
        return best

    def rows(self, found: Answers[Variants, Served]) -> Iterator[Row]:
        for count in self.counts:
            shared, separate = found[Variants("shared", count, 1)], found[Variants("separate", count, 1)]
            for slo in SLOS if count == max(self.counts) else (SHOWN,):
                rates = [[one.throughput[slo] for one in each] for each in (shared, separate)]
                middle = [np.median(each) for each in rates]
                yield row(
                    f"{count} variants, SLO {slo * 1e3:g} ms: more throughput",
                    [
                        100 * (one / other - 1) if other else math.inf
                        for one, other in zip(*rates, strict=True)
                    ],
                    unit="%",
                    published=PUBLISHED if count == max(self.counts) else None,
                    note=f"published: at most; {middle[0]:.0f} against {middle[1]:.0f} requests/s",
                )
            yield row(
                f"{count} variants: weights",
                [one.memory for one in shared],
                unit="MiB",
                note=f"{separate[0].memory:.1f} MiB without sharing",
            )
        shares = [one.difference for task, each in found.items() if task.how == "shared" for one in each]
        yield row("difference of the answers", shares, note="largest, relative; from each model alone")

    def series(self, found: Answers[Variants, Served]) -> Iterator[Series]:
        for how, layers in dict.fromkeys((task.how, task.layers) for task in found):
            own = [found[Variants(how, count, layers)] for count in self.counts]
            name = f"{how}, {layers} FC"
            yield curve(name, self.counts, [[one.memory for one in each] for each in own], panel="memory")
            if layers == 1:
                rates = [[one.throughput[SHOWN] for one in each] for each in own]
                yield curve(name, self.counts, rates, panel="throughput")

    def configuration(self) -> dict[str, Any]:
        return {"slos": SLOS, "inputs": INPUTS, "width": self.width, "depth": DEPTH, "batches": self.batches}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw throughput and memory against the variants."""
        figure, axes = style.figure("Variants of one network", columns=2)
        for axis, panel, label in zip(
            axes.flat,
            ("throughput", "memory"),
            (f"requests/s within {SHOWN * 1e3:g} ms", "weights, MiB"),
            strict=True,
        ):
            style.curves(axis, result.panel(panel))
            axis.set(xlabel="variants", ylabel=label)
            axis.set_ylim(bottom=0)
            style.legend(axis)
        return [style.Drawing(figure)]


def variant(width: int, layers: int, head: int, seed: int) -> ModelProto:
    """Return a network whose last layers are its own."""
    from onnx import TensorProto, helper, numpy_helper

    sizes = [INPUTS, *[width] * (1 + DEPTH + layers - 1), OUTPUTS]
    nodes, weights, value = [], [], "pixels"
    for place, (inputs, outputs) in enumerate(pairwise(sizes)):
        numbers = _numbers(inputs, outputs, seed, place, head + 1 if place > DEPTH else 0)
        weights.append(numpy_helper.from_array(numbers, f"weight-{place}"))
        nodes.append(helper.make_node("MatMul", [value, f"weight-{place}"], [f"sum-{place}"]))
        value = f"value-{place}"
        nodes.append(helper.make_node("Relu", [f"sum-{place}"], [value]))
    graph = helper.make_graph(
        nodes,
        "variant",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["rows", INPUTS])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["rows", OUTPUTS])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@lru_cache(maxsize=1 + DEPTH)
def _numbers(inputs: int, outputs: int, *seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).standard_normal((inputs, outputs), np.float32)
    return numbers * np.float32(np.sqrt(2 / inputs))


def requests(names: Sequence[str], count: int, seed: int, *, rows: int = 1) -> list[PrefixRequest]:
    """Return requests for the networks in turn."""
    rng = np.random.default_rng(seed)
    return [
        PrefixRequest(names[place % len(names)], [rng.standard_normal((rows, INPUTS), np.float32)])
        for place in range(count)
    ]


def _difference(batch: PrefixBatch, wholes: dict[str, Part], some: Sequence[PrefixRequest]) -> float:
    """Return how far the answers of a batch are from those of the whole models."""
    expected = [wholes[one.network](one.inputs)[0] for one in some]
    found = [answer[0] for answer in batch.run(some)]
    largest = max(float(np.abs(one).max()) for one in expected)
    return max(float(np.abs(a - b).max()) for a, b in zip(expected, found, strict=True)) / largest


def _keep_best(best: dict[float, float], longest: float, throughput: float) -> None:
    """Note a throughput for the SLOs that the longest time of a request is within; modifies ``best``."""
    for slo, known in best.items():
        if longest <= slo:
            best[slo] = max(known, throughput)


def _seconds(execute: Any) -> float:
    """Return the least time that an execution takes of this thread, the only one, on its core."""
    execute()
    times = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        execute()
        times.append(time.thread_time() - begin)
    return min(times)
