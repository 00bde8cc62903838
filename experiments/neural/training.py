"""Trains networks on samples of random servers: the estimator's, and one that reads windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tuner.agents.rrl.neural.network import (
    FACTORS,
    LARGEST_LOGARITHM,
    LEAST_DEVIATION,
    OUTPUTS,
    WIDTH,
    Network,
)
from tuner.experiments.neural.samples import CONFIGURATIONS, Samples

if TYPE_CHECKING:
    import torch

    from tuner.experiments.neural.attention import Attention

__all__ = ["Reader", "Recipe", "Scale", "join", "loss_of", "train", "train_reader"]

IGNORED = 0.2
"""Standard deviation added to a window of weight 1/2: latencies far from the least need not be exact."""
READ, NONE = 8, 0.25
"""Most windows of a server that a network reads in training, and how often it reads none."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the network is trained."""

    hidden: tuple[int, ...] = (192, 192)
    epochs: int = 16
    batch: int = 96
    """Servers of a step."""
    rate: float = 2e-3
    decay: float = 1e-4
    seed: int = 0


def join(parts: Sequence[Samples]) -> Samples:
    """Return samples one after the other."""
    return Samples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def train(
    samples: Samples,
    recipe: Recipe,
    *,
    device: str = "cpu",
    progress: Callable[[float], None] = lambda _: None,
) -> Network:
    """Train a network; on one kind of processor the same samples and recipe give the same bits.

    Args:
        samples: What to learn from.
        recipe: How.
        device: Of torch.
        progress: Called with the loss of every epoch.
    """
    import torch

    torch.manual_seed(recipe.seed)
    scale = scale_of(samples.rows)
    data = _Data.of(samples, scale, device)
    widths = [samples.rows.shape[1], *recipe.hidden]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], WIDTH)).to(device)

    def loss(part: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        return loss_of(model(data.rows[part]), data.targets[part], data.extra[part], data.known[part])

    _descend(model, loss, data.rows.shape[0], recipe, progress)
    arrays = [p.detach().cpu().numpy() for p in model.parameters()]
    layers_out = tuple(np.ascontiguousarray(a.T if a.ndim == 2 else a, dtype=np.float32) for a in arrays)
    return Network(*scale, layers_out)


class Reader(NamedTuple):
    """A trained network that reads windows."""

    scale: Scale
    model: Attention

    def outputs(self, rows: np.ndarray, seen: Sequence[int], shown: np.ndarray) -> np.ndarray:
        """Return what is expected of each configuration of one server.   # (n, WIDTH).

        Args:
            rows: Inputs of the configurations.   # (n, INPUTS)
            seen: Which of the rows windows were seen of.   # m
            shown: What these windows showed.   # (m, OUTPUTS)
        """
        import torch

        places = list(seen) or [0]
        asked = torch.tensor(self.scale.apply(rows))[None]
        windows = torch.tensor(shown if len(seen) else np.zeros((1, OUTPUTS), np.float32))[None]
        there = torch.full((1, len(places)), float(len(seen) > 0))
        with torch.no_grad():
            return np.asarray(self.model(asked, asked[:, places], windows, there)[0].double().numpy())


def train_reader(
    samples: Samples, recipe: Recipe, *, progress: Callable[[float], None] = lambda _: None
) -> Reader:
    """Train a network that reads windows: of every server it sees a few, and learns to expect the others.

    Args:
        samples: What to learn from.
        recipe: How; its ``hidden`` is not used.
        progress: Called with the loss of every epoch.
    """
    import torch

    from tuner.experiments.neural.attention import Attention

    torch.manual_seed(recipe.seed)
    scale = scale_of(samples.rows)
    data = _Data.of(samples, scale, "cpu")
    shown = torch.tensor(samples.targets).reshape(data.targets.shape)  # with NaN, where nobody measured
    model = Attention()

    def loss(part: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        count = part.numel()
        order = torch.rand((count, CONFIGURATIONS), generator=generator).argsort(dim=1)
        first, rest = order[:, :READ], order[:, READ:]
        some = torch.randint(1, READ + 1, (count,), generator=generator)
        some = torch.where(torch.rand(count, generator=generator) < NONE, 0, some)
        seen = (torch.arange(READ)[None] < some[:, None]).float()
        rows, extra = data.rows[part], data.extra[part].gather(1, rest)
        outputs = model(_pick(rows, rest), _pick(rows, first), _pick(shown[part], first), seen)
        return loss_of(outputs, _pick(data.targets[part], rest), extra, data.known[part])

    _descend(model, loss, data.rows.shape[0], recipe, progress)
    return Reader(scale, model.eval())


class Scale(NamedTuple):
    """How rows are centred and scaled, and where they are clipped. All (INPUTS,) float32."""

    centre: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return rows as networks take them.   # (n, INPUTS) float32."""
        scaled = np.clip((rows - self.centre) / self.scale, self.low, self.high)
        return np.asarray(scaled, np.float32)


def scale_of(rows: np.ndarray) -> Scale:
    """Return the scale of training rows.   # (n, INPUTS)."""
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-3)
    low, high = np.quantile((rows - centre) / scale, [0.0005, 0.9995], axis=0).astype(np.float32)
    # a column that hardly varies must not be clipped to one value
    return Scale(centre.astype(np.float32), scale.astype(np.float32), low - 0.05, high + 0.05)


class _Data(NamedTuple):
    """Samples as tensors, server by server."""

    rows: torch.Tensor  # (g, n, INPUTS) scaled
    targets: torch.Tensor  # (g, n, OUTPUTS) 0 where nobody measured
    known: torch.Tensor  # (g, OUTPUTS) 1 where somebody did
    extra: torch.Tensor  # (g, n) variance added to windows that matter less

    @classmethod
    def of(cls, samples: Samples, scale: Scale, device: str) -> _Data:
        import torch

        group = (-1, CONFIGURATIONS)
        known = torch.tensor(np.isfinite(samples.targets), device=device).reshape(*group, OUTPUTS)[:, 0]
        return cls(
            torch.tensor(scale.apply(samples.rows), device=device).reshape(*group, samples.rows.shape[1]),
            torch.tensor(np.nan_to_num(samples.targets), device=device).reshape(*group, OUTPUTS),
            known.float(),
            torch.tensor(IGNORED**2 * (1.0 / samples.weights - 1.0), device=device).reshape(group),
        )


def _descend(
    model: torch.nn.Module,
    loss_of_part: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
    servers: int,
    recipe: Recipe,
    progress: Callable[[float], None],
) -> None:
    """Fit a model in steps of some servers each.

    Args:
        model: The network.
        loss_of_part: The loss of the servers with these numbers, which may draw by chance.
        servers: How many there are.
        recipe: How.
        progress: Called with the loss of every epoch.
    """
    import torch

    device = next(model.parameters()).device
    steps = recipe.epochs * -(-servers // recipe.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=steps)
    generator = torch.Generator().manual_seed(recipe.seed)
    for _ in range(recipe.epochs):
        order = torch.randperm(servers, generator=generator).to(device)
        total = torch.zeros((), device=device)
        for part in order.split(recipe.batch):  # type: ignore[no-untyped-call]
            loss = loss_of_part(part, generator)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            total += loss.detach() * part.numel()
        progress(float(total) / servers)


def _pick(values: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return some of the windows of each server.   # (g, m, k)."""
    return values.gather(1, numbers[..., None].expand(-1, -1, values.shape[-1]))


def loss_of(
    outputs: torch.Tensor, targets: torch.Tensor, extra: torch.Tensor, known: torch.Tensor
) -> torch.Tensor:
    """Return minus the logarithm of the likelihood of all windows of each server, jointly normal.

    Args:
        outputs: Of the network.   # (g, n, WIDTH)
        targets: What the windows showed.   # (g, n, OUTPUTS)
        extra: Variance added to windows that matter less.   # (g, n)
        known: 1 where an output was measured.   # (g, OUTPUTS)
    """
    import torch

    groups, count = targets.shape[:2]
    mean = outputs[..., :OUTPUTS]
    log_deviation = outputs[..., OUTPUTS : 2 * OUTPUTS].clamp(max=LARGEST_LOGARITHM)
    loadings = (
        outputs[..., 2 * OUTPUTS :].reshape(groups, count, OUTPUTS, FACTORS).transpose(1, 2)
    )  # (g, o, n, k)
    own = (2.0 * log_deviation).exp() + LEAST_DEVIATION**2
    variance = (own + extra[..., None]).transpose(1, 2)  # (g, o, n)
    residual = (targets - mean).transpose(1, 2)
    scaled = loadings / variance[..., None]
    inner = torch.eye(FACTORS, device=outputs.device) + scaled.transpose(-1, -2) @ loadings  # (g, o, k, k)
    factor = torch.linalg.cholesky(inner)
    across = (scaled * residual[..., None]).sum(dim=-2)[..., None]  # (g, o, k, 1)
    solved = torch.linalg.solve_triangular(factor, across, upper=False)
    distance = (residual**2 / variance).sum(dim=-1) - (solved**2).sum(dim=(-1, -2))
    volume = variance.log().sum(dim=-1) + 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    likelihood: torch.Tensor = (0.5 * (distance + volume) * known).sum() / (known.sum() * count)
    return likelihood
