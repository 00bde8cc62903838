"""RRL's estimation function ``f(c, r_t(s_t, c_t))``: what configurations near a measured one cost.

Qin et al., SC'19, section 5.1: a network of 256 and 64 ReLU units with a linear output, trained with
FTRL on all windows seen so far. It predicts the logarithm of the cost, ``g(s, c)``, and is anchored at
the measurement (eq. 1 asks for ``f(c_t, r_t) = r_t``)::

    r_hat(c) = r_t * exp(g(s, c) - g(s, c_t))

Where we differ: the paper does not say how the anchoring is done. We limit the ratio to ``1/ratio_limit ..
ratio_limit``, because a network may predict anything where it has seen nothing. Until there are
``minimum_samples`` windows, ``g = 0``: neighbours are taken to cost what was measured, which is the paper's
observation of Fig. 6. The network learns logarithms, on which noise is alike everywhere.

The authors' code differs again, and :class:`EstimatorParameters` can follow it: labels in milliseconds
instead of logarithms, no anchoring, a Huber loss, and a network trained from scratch in every window.

Training never delays a window: :meth:`Estimator.observe` notes the sample and returns; a background
thread trains a copy and swaps the finished weights in. With ``background=False`` training happens inside
``observe``, and the same seed gives the same estimates, as simulation and tests need it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tuner.agents.load_levels import without_neighbours
from tuner.agents.log_cost import log_costs
from tuner.agents.rrl.network.network import Weights, forward, frozen, initial_weights
from tuner.agents.threads import one_blas_thread
from tuner.agents.trainer import Trainer

if TYPE_CHECKING:
    import torch

__all__ = ["Estimator", "EstimatorParameters"]

LEVELS_PER_UNIT = 10.0
"""Load levels that make one unit of the load feature: nearly a decade of rate at a ratio of 1.25."""


LEAST_OUTPUT = 1e-3
"""Of a network of milliseconds, which may say less than 0. A lower output counts as this one."""
MOST_LAYERS, MOST_UNITS = 8, 4096
"""Of a network: a stored policy may ask for no more."""
MOST = 1_000_000
"""Steps, samples of a step, and windows remembered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatorParameters:
    """How the estimation function is built and trained."""

    hidden: tuple[int, ...] = (256, 64)
    """Units of the hidden layers (section 5.1)."""
    learning_rate: float = 0.1
    """alpha of FTRL."""
    l1: float = 0.0
    """L1 weight of FTRL."""
    l2: float = 0.0
    """L2 weight of FTRL."""
    label: Literal["log", "ms"] = "log"
    """What the network learns: the logarithm of the cost, or milliseconds as in the authors' code."""
    anchored: bool = True
    """Whether estimates are tied to the measurement (eq. 1); if not, only that of the measured one is."""
    huber: float | None = None
    """Beyond this error the loss is linear (the authors: 100 ms); None: squared throughout."""
    from_scratch: bool = False
    """Train from new weights in every window, as the authors' code does, instead of going on."""
    steps: int = 30
    """Most gradient steps per new window."""
    loss_threshold: float = 0.002
    """Mean squared error of the log cost at which training stops early; 0.002 is noise of 4.5 %."""
    batch: int = 256
    """Samples per gradient step; fewer samples than this are all used."""
    minimum_samples: int = 4
    """Windows before the estimates are used at all."""
    ratio_limit: float = 30.0
    """Estimates lie within this factor of the measurement; the way into overload is about that steep."""
    memory: int = 8192
    """Windows remembered; older ones are forgotten, so that months of running do not slow training."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.hidden) <= MOST_LAYERS or not all(1 <= n <= MOST_UNITS for n in self.hidden):
            raise ValueError(
                f"`hidden` needs 1 to {MOST_LAYERS} layers of 1 to {MOST_UNITS} units, but got {self.hidden}"
            )
        if max(self.steps, self.batch, self.memory) > MOST:
            raise ValueError(f"`steps`, `batch` and `memory` are at most {MOST}, but got {self}")
        if min(self.steps, self.batch, self.minimum_samples, self.memory) < 1 or not self.ratio_limit > 1:
            raise ValueError(f"counts must be positive and `ratio_limit > 1`, but got {self}")
        if not (self.learning_rate > 0 and self.l1 >= 0 and self.l2 >= 0):
            raise ValueError(
                "`learning_rate > 0` and `l1, l2 >= 0` must hold, "
                f"but got {self.learning_rate=}, {self.l1=}, {self.l2=}"
            )
        if self.label not in ("log", "ms") or not (self.huber is None or self.huber > 0):
            raise ValueError(f"`label` is log or ms and `huber > 0` must hold, but got {self}")


class Estimator:
    """The estimation function of one agent: observes windows, trains itself, estimates.

    Args:
        features: Coordinates of every configuration, scaled to 0..1.   # (size, knobs) float32
        parameters: Network and training.
        seed: Of the initial weights and the sampling of batches.
        background: Train in a thread of its own; otherwise inside :meth:`observe`.
        unit: Seconds that a cost of 1 stands for; matters for labels in milliseconds only.

    Attributes:
        trainer: Trains the network; its ``background`` may change between windows.
        weights: The finished network that estimates rest on.
        first_level: The load level at which the load feature is 0: the first one observed.
    """

    def __init__(
        self,
        features: np.ndarray,
        parameters: EstimatorParameters | None = None,
        *,
        seed: int = 0,
        background: bool = False,
        unit: float = 1.0,
    ) -> None:
        self.parameters = parameters or EstimatorParameters()
        self._milliseconds = 1e3 * unit
        self._features = np.asarray(features, dtype=np.float32)
        self._generator = np.random.default_rng(seed)
        self.weights = self._new_weights()
        self.first_level: int | None = None
        self._samples: deque[tuple[int, int, float]] = deque(maxlen=self.parameters.memory)
        self._trained = False
        self._lock = threading.Lock()
        self.trainer = Trainer(self._train, "rrl-estimator", background=background)

    @property
    def inputs(self) -> int:
        """Features of one point: one per knob and one for the load."""
        return int(self._features.shape[1]) + 1

    @property
    def trained(self) -> bool:
        """Whether estimates rest on a trained network."""
        return self._trained

    def samples(self) -> np.ndarray:
        """Return the windows remembered: level, configuration, cost.   # (n, 3)."""
        with self._lock:
            return np.array(self._samples, dtype=np.float64).reshape(-1, 3)

    def observe(self, level: int, configuration: int, cost: float) -> None:
        """Note one window, and train on all windows."""
        with self._lock:
            if self.first_level is None:
                self.first_level = level
            self._samples.append((level, configuration, cost))
            enough = len(self._samples) >= self.parameters.minimum_samples
        if enough:
            self.trainer.request()

    def log_costs(self, level: int, configurations: np.ndarray) -> np.ndarray:
        """Return g(s, c), the estimated logarithm of the cost; 0 before training.   # (n,)."""
        if not self._trained:
            return np.zeros(len(configurations))
        inputs = self._inputs(np.full(len(configurations), level), configurations)
        with one_blas_thread():
            outputs = forward(self.weights, inputs)
        if self.parameters.label == "log":
            return outputs
        return log_costs(np.maximum(outputs / self._milliseconds, LEAST_OUTPUT))

    def estimates(self, level: int, configurations: np.ndarray, anchor: int, cost: float) -> np.ndarray:
        """Return r_hat, what configurations cost when ``anchor`` was measured to cost ``cost``.   # (n,)."""
        if self.parameters.anchored or not self._trained:
            return cost * self.ratios(level, configurations, anchor)
        predicted = np.exp(self.log_costs(level, configurations))
        return np.asarray(np.where(np.asarray(configurations) == anchor, cost, predicted))

    def ratios(self, level: int, configurations: np.ndarray, anchor: int) -> np.ndarray:
        """Return estimated cost over that of ``anchor``, exactly 1 at the anchor itself.   # (n,)."""
        if not self._trained:
            return np.ones(len(configurations))
        logs = self.log_costs(level, np.append(configurations, anchor))
        limit = math.log(self.parameters.ratio_limit)
        ratios = np.exp(np.clip(logs[:-1] - logs[-1], -limit, limit))
        # Matrix products may round a row differently in another place: f(c_t, r_t) = r_t is exact.
        ratios[np.asarray(configurations) == anchor] = 1.0
        return np.asarray(ratios)

    def restore(self, weights: Weights, samples: np.ndarray, first_level: int | None) -> None:
        """Take over weights and windows that were saved.

        Args:
            weights: Of the shapes that :func:`~tuner.agents.rrl.network.network.layer_shapes` gives.
            samples: As :meth:`samples` returns them.
            first_level: The load level at which the load feature is 0.
        """
        with self._lock:
            self.weights = frozen(weights)
            self._samples.clear()
            self._samples.extend((int(level), int(c), float(cost)) for level, c, cost in samples)
            self.first_level = first_level
            self._trained = len(self._samples) >= self.parameters.minimum_samples

    def thin(self, most: int) -> None:
        """Forget windows, evenly chosen, until at most ``most`` are left."""
        with self._lock:
            kept = list(self._samples)
            if len(kept) > most:
                chosen = np.linspace(0, len(kept) - 1, most).round().astype(int)
                self._samples.clear()
                self._samples.extend(kept[i] for i in chosen)

    def _inputs(self, levels: np.ndarray, configurations: np.ndarray) -> np.ndarray:
        load = without_neighbours(np.asarray(levels) - (self.first_level or 0)) / LEVELS_PER_UNIT
        return np.column_stack([self._features[configurations], load.astype(np.float32)])

    def _train(self, requests: int) -> None:
        # Windows that came in while the last training ran are trained on together.
        steps = self.parameters.steps * min(requests, 4)
        samples = self.samples()
        levels, configurations = samples[:, 0].astype(np.int64), samples[:, 1].astype(np.int64)
        if self.parameters.label == "log":
            targets = log_costs(samples[:, 2])
        else:
            targets = self._milliseconds * samples[:, 2]
        weights = self._fit(self._inputs(levels, configurations), targets.astype(np.float32), steps)
        if weights is not None and all(np.isfinite(array).all() for array in weights):
            self.weights = weights  # one assignment: a reader sees the old or the new ones, never a mixture
            self._trained = True

    def _new_weights(self) -> Weights:
        weights = initial_weights(self.inputs, self.parameters.hidden, self._generator)
        # The load column starts at 0: while only one level was seen, another is not guessed at random.
        first = weights[0].copy()
        first[-1] = 0.0
        return frozen([first, *weights[1:]])

    def _fit(self, inputs: np.ndarray, targets: np.ndarray, steps: int) -> Weights | None:
        """Continue from the present weights, or from new ones; None if closed meanwhile."""
        import torch

        from tuner.agents.rrl.network.ftrl import Ftrl

        # More threads only wait for each other on such small matrices; the cores are the server's.
        torch.set_num_threads(1)
        p = self.parameters
        x, y = torch.from_numpy(inputs), torch.from_numpy(targets)
        weights = self._new_weights() if p.from_scratch else self.weights
        arrays = [torch.tensor(array, requires_grad=True) for array in weights]
        optimizer = Ftrl(arrays, p.learning_rate, l1=p.l1, l2=p.l2, proximal_start=True)
        everything = len(targets) <= p.batch
        for _ in range(steps):
            if self.trainer.closed:
                return None
            inputs_now, targets_now = x, y
            if not everything:
                rows = torch.from_numpy(self._generator.choice(len(targets), p.batch, replace=False))
                inputs_now, targets_now = x[rows], y[rows]
            outputs = _forward(arrays, inputs_now)
            if p.huber is None:
                loss = torch.nn.functional.mse_loss(outputs, targets_now)
            else:
                loss = torch.nn.functional.huber_loss(outputs, targets_now, delta=p.huber)
            if everything and loss.item() <= p.loss_threshold:
                break
            loss.backward()  # type: ignore[no-untyped-call]  # torch's is unannotated
            optimizer.step()
        return frozen([array.detach().numpy() for array in arrays])


def _forward(arrays: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """The same as :func:`~tuner.agents.rrl.network.network.forward`, with gradients."""
    for i in range(0, len(arrays) - 2, 2):
        values = (values @ arrays[i] + arrays[i + 1]).relu()
    return (values @ arrays[-2] + arrays[-1])[:, 0]
