"""Trains the weights of the neural estimator again, as they come with the package.

The samples are windows of random servers of every kind (:mod:`tuner.envs.randomised`); nothing in
them was measured on a real one. With the same versions of numpy and PyTorch, on the same kind of processor,
the weights are the same bit by bit; numpy and MKL choose their instructions by the processor, and others
round otherwise. So does a GPU, which is used where PyTorch sees one; ``CUDA_VISIBLE_DEVICES= tuner ...``
hides it. The weights are written beside the result; to use them, copy both files to ``agents/rrl/neural``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.agents.rrl.neural.network import WEIGHTS, Network, Outputs, digest_of, evaluate, shipped
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row
from tuner.experiments.neural.samples import CONFIGURATIONS, Samples, draw_samples
from tuner.experiments.neural.training import Recipe, join, train

__all__ = ["HELD_OUT", "P95", "Pretrain", "ServerBlock", "blocks", "by_factors", "error_left", "save_weights"]

SERVERS = {"triton": 27000, "tfserving_cpu": 21000, "tfserving_gpu": 21000}
"""How many are trained on, by family."""
BLOCK = 50
"""Servers of one task."""
HELD_OUT, CHECKED = 1_000_000, 100
"""The first seed of servers that are not trained on, and how many of each family."""
STATISTICS = ("mean latency", "p50", "p95", "p99", "CPU use", "GPU use")
P95, CPU = 2, 4
"""Columns of these."""
SEEN = 4
"""Windows that a prediction may rest on, beside the one that was watched."""


class ServerBlock(NamedTuple):
    """Servers with consecutive seeds."""

    family: str
    first: int
    servers: int

    def draw(self) -> Samples:
        """Return their windows."""
        return join([draw_samples(self.family, self.first + n) for n in range(self.servers)])


def blocks(servers: Mapping[str, int], share: float, checked: int) -> list[ServerBlock]:
    """Return the servers to train on, and those to check on, in blocks.

    Args:
        servers: How many are trained on, by family.
        share: Of these.
        checked: How many of each family are held out.
    """
    return [
        ServerBlock(family, first, min(BLOCK, count - first))
        for family, most in servers.items()
        for count in (max(int(share * most), 1),)
        for first in range(0, count, BLOCK)
    ] + [ServerBlock(family, HELD_OUT, checked) for family in servers]


@experiment(
    name="neural-pretrain",
    title="The weights of the neural estimator, trained again, and how exact they are on held-out servers",
    minutes=12,
    repeated=False,
)
class Pretrain(Experiment[ServerBlock, Samples]):
    """Simulates servers, then trains on their windows."""

    share = Scaled(1.0, quick=0.01)
    """Of the servers."""
    checked = Scaled(CHECKED, quick=10)
    recipe = Scaled(Recipe(), quick=Recipe(epochs=4))

    def tasks(self) -> list[ServerBlock]:
        return blocks(SERVERS, self.share, self.checked)

    def measure(self, task: ServerBlock, seed: int) -> Samples:  # noqa: ARG002 - the servers have their own
        return task.draw()

    def rows(self, found: Answers[ServerBlock, Samples]) -> Iterator[Row]:
        network = self._train(found)
        for family in SERVERS:
            held = found[ServerBlock(family, HELD_OUT, self.checked)][0]
            yield from _exactness(family, network, held)
        same = (
            all(np.array_equal(a, b) for a, b in zip(network.layers, shipped().layers, strict=True))
            if WEIGHTS.exists()
            else False
        )
        yield Row(id="same bits as the weights that come with the package", measured=float(same))

    def configuration(self) -> dict[str, Any]:
        return {"servers": SERVERS, "windows of a server": CONFIGURATIONS, **asdict(self.recipe)}

    def _train(self, found: Answers[ServerBlock, Samples]) -> Network:
        import torch

        torch.set_num_threads(1)  # the order of a sum over threads is no one's promise
        parts = [answers[0] for block, answers in found.items() if block.first < HELD_OUT]
        losses: list[float] = []

        def progress(loss: float) -> None:
            losses.append(loss)
            self.report(f"epoch {len(losses)} of {self.recipe.epochs}: loss {loss:.3f}")

        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        self.report(f"trains on {gpu or 'the CPU'}")
        network = train(join(parts), self.recipe, device="cuda" if gpu else "cpu", progress=progress)
        folder = self.options.folder / "neural-pretrain"
        save_weights(network, {**self.configuration(), **({"gpu": gpu} if gpu else {})}, folder)
        self.report(f"weights: {folder}")
        return network


def save_weights(network: Network, sheet: dict[str, Any], folder: Path) -> None:
    """Write ``weights.npz`` and its data sheet ``weights.json`` to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / WEIGHTS.name
    arrays = {f"layer{i}": layer for i, layer in enumerate(network.layers)}
    plain = {name: getattr(network, name) for name in ("centre", "scale", "low", "high")}
    np.savez(path, allow_pickle=False, **plain, **arrays)
    sheet = {
        "what": "weights of servetune's neural latency estimator",
        "made by": "tuner experiment run neural-pretrain",
        "trained on": "random simulated servers (ranges: envs/randomised.py); no real one",
        "seeds": f"0 to one less than the number of servers of each family; held out: from {HELD_OUT}",
        **sheet,
        "parameters": int(sum(layer.size for layer in network.layers)),
        "sha256": digest_of(path),
    }
    path.with_suffix(".json").write_text(json.dumps(sheet, indent=1) + "\n")


def _exactness(family: str, network: Network, held: Samples) -> Iterator[Row]:
    """Yield the errors of predictions on held-out servers, before and after a few windows were seen."""
    outputs = evaluate(network, held.rows)
    errors, weights = outputs.mean - held.targets, held.weights
    for column in (P95, CPU):
        before = np.sqrt(np.average(errors[:, column] ** 2, weights=weights))
        after = by_factors(outputs, held, column, SEEN)
        name = f"{family}, {STATISTICS[column]}: error of its logarithm"
        yield Row(id=f"{name}, one window watched", measured=float(before))
        yield Row(id=f"{name}, {SEEN} more windows seen", measured=after)


def error_left(
    held: Samples, column: int, count: int, expect: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> float:
    """Return the error of predictions that rest on some windows of each server, weighted as in training.

    Args:
        held: What the windows showed.
        column: Which of the outputs is predicted.
        count: How many windows of each server are seen, drawn by chance.
        expect: Numbers of the rows seen, and of the others -> what is expected of the others.
    """
    generator = np.random.default_rng(0)
    squares, total = 0.0, 0.0
    for begin in range(0, held.weights.size, CONFIGURATIONS):
        seen = generator.choice(CONFIGURATIONS, count, replace=False)
        others = begin + np.setdiff1d(np.arange(CONFIGURATIONS), seen)
        error = expect(begin + seen, others) - held.targets[others, column]
        squares += float((held.weights[others] * error**2).sum())
        total += float(held.weights[others].sum())
    return math.sqrt(squares / total)


def by_factors(outputs: Outputs, held: Samples, column: int, count: int) -> float:
    """Return the error that is left when the factors have learned from some windows of each server.

    Args:
        outputs: What the network says of the rows.
        held: What the windows showed.
        column: Which of the outputs is predicted.
        count: How many windows of each server are seen.
    """
    mean, loading = outputs.mean[:, column], outputs.loadings[:, column]
    missed = held.targets[:, column] - mean

    def expect(seen: np.ndarray, others: np.ndarray) -> np.ndarray:
        within = loading[seen] @ loading[seen].T + np.diag(outputs.deviation[seen, column] ** 2)
        return np.asarray(
            mean[others] + loading[others] @ loading[seen].T @ np.linalg.solve(within, missed[seen])
        )

    return error_left(held, column, count, expect)
