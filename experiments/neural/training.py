"""Trains the estimator's network on samples of random servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

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

__all__ = ["Recipe", "join", "loss_of", "train"]


IGNORED = 0.2
"""Standard deviation added to a window of weight 1/2: latencies far from the least need not be exact."""


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
    """Train a network; on the CPU the same samples and recipe give the same bits.

    Args:
        samples: What to learn from.
        recipe: How.
        device: Of torch.
        progress: Called with the loss of every epoch.
    """
    import torch

    torch.manual_seed(recipe.seed)
    rows, targets = samples.rows, np.nan_to_num(samples.targets)
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-3)
    scaled = (rows - centre) / scale
    low, high = np.quantile(scaled, [0.0005, 0.9995], axis=0).astype(np.float32)
    # a column that hardly varies must not be clipped to one value
    low, high = low - 0.05, high + 0.05
    group = (-1, CONFIGURATIONS)
    x = torch.tensor(np.clip(scaled, low, high), dtype=torch.float32, device=device).reshape(
        *group, rows.shape[1]
    )
    y = torch.tensor(targets, device=device).reshape(*group, OUTPUTS)
    known = torch.tensor(np.isfinite(samples.targets), device=device).reshape(*group, OUTPUTS)[:, 0].float()
    extra = torch.tensor(IGNORED**2 * (1.0 / samples.weights - 1.0), device=device).reshape(group)
    widths = [rows.shape[1], *recipe.hidden]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], WIDTH)).to(device)
    steps = recipe.epochs * -(-x.shape[0] // recipe.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=steps)
    generator = torch.Generator().manual_seed(recipe.seed)
    for _ in range(recipe.epochs):
        order = torch.randperm(x.shape[0], generator=generator).to(device)
        total = torch.zeros((), device=device)
        for part in order.split(recipe.batch):  # type: ignore[no-untyped-call]
            loss = loss_of(model(x[part]), y[part], extra[part], known[part])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            total += loss.detach() * part.numel()
        progress(float(total) / x.shape[0])
    arrays = [p.detach().cpu().numpy() for p in model.parameters()]
    layers_out = tuple(np.ascontiguousarray(a.T if a.ndim == 2 else a, dtype=np.float32) for a in arrays)
    return Network(centre.astype(np.float32), scale.astype(np.float32), low, high, layers_out)


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
