"""Two forms of the neural estimator: one whose factors learn from windows, one that reads the windows.

Both are trained on the same windows of random servers. The first is the form that comes with the package: of
a server it is told of one window, and its factors say what the next ones will teach. The second looks at each
window that was seen (:mod:`tuner.experiments.neural.attention`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tuner.agents.rrl.neural.network import evaluate
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row
from tuner.experiments.neural.pretrain import HELD_OUT, P95, ServerBlock, blocks, by_factors, error_left
from tuner.experiments.neural.samples import CONFIGURATIONS, Samples
from tuner.experiments.neural.training import Reader, Recipe, join, train, train_reader

__all__ = ["InContext"]

SERVERS = {"triton": 6000, "tfserving_cpu": 6000, "tfserving_gpu": 6000}
"""How many are trained on, by family: a quarter of what the package's weights are trained on."""
SEEN = (0, 1, 4, 8)
"""Windows of a server that a prediction rests on, beside the one that was watched."""


@experiment(
    name="neural-in-context",
    title="An estimator that reads the windows seen, beside one whose factors learn from them",
    minutes=8,
    repeated=False,
    shown=24,
)
class InContext(Experiment[ServerBlock, Samples]):
    """Simulates servers, trains both forms on their windows, and compares them on servers held out."""

    share = Scaled(1.0, quick=0.005)
    """Of the servers."""
    checked = Scaled(200, quick=5)
    epochs = Scaled(30, quick=2)

    def tasks(self) -> list[ServerBlock]:
        return blocks(SERVERS, self.share, self.checked)

    def measure(self, task: ServerBlock, seed: int) -> Samples:  # noqa: ARG002 - the servers have their own
        return task.draw()

    def rows(self, found: Answers[ServerBlock, Samples]) -> Iterator[Row]:
        import torch

        torch.set_num_threads(1)  # as in neural-pretrain: the same bits every time
        samples = join([answers[0] for block, answers in found.items() if block.first < HELD_OUT])
        recipe = Recipe(epochs=self.epochs)
        network = train(samples, recipe, progress=lambda loss: self.report(f"factors: loss {loss:.3f}"))
        reader = train_reader(samples, recipe, progress=lambda loss: self.report(f"reads: loss {loss:.3f}"))
        for family in SERVERS:
            held = found[ServerBlock(family, HELD_OUT, self.checked)][0]
            outputs = evaluate(network, held.rows)
            for count in SEEN:
                name = f"{family}: error of the logarithm of p95, {count} windows seen"
                yield Row(id=f"{name}, factors", measured=by_factors(outputs, held, P95, count))
                yield Row(id=f"{name}, reads the windows", measured=_by_reading(reader, held, count))

    def configuration(self) -> dict[str, Any]:
        return {"servers": SERVERS, "windows of a server": CONFIGURATIONS, "epochs": self.epochs}


def _by_reading(reader: Reader, held: Samples, count: int) -> float:
    """Return the error of predictions that rest on some windows of each server."""

    def expect(seen: np.ndarray, others: np.ndarray) -> np.ndarray:
        rows = held.rows[np.concatenate([seen, others])]
        return np.asarray(reader.outputs(rows, range(count), held.targets[seen])[count:, P95])

    return error_left(held, P95, count, expect)
