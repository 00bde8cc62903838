"""FTRL-Proximal as a torch optimizer (torch ships none).

McMahan et al., "Ad click prediction: a view from the trenches", KDD'13, algorithm 1, per coordinate, in
the form TensorFlow gives it: accumulators start at 0.1, the learning-rate power is -1/2, and the L2
term counts twice (``l1*|w| + l2*w^2``). Of each coordinate it keeps ``n``, the sum of squared
gradients, and ``z``, from which the weight follows::

    n'    = n + g^2
    sigma = (sqrt(n') - sqrt(n)) / lr
    z'    = z + g - sigma * w
    w'    = 0                                                if |z'| <= l1
            (sign(z') * l1 - z') / ((beta + sqrt(n')) / lr + 2 * l2)   otherwise

Where we differ: TensorFlow starts with z = 0, which forgets the initial weights in the first step. That
is right for the linear models FTRL was made for and wrong for a network, whose hidden units would lose
the random weights in which they differ. ``proximal_start`` therefore begins with the z that the initial
weights follow from; without regularisation this is AdaGrad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch

__all__ = ["Ftrl"]


class Ftrl(torch.optim.Optimizer):
    """Follow the regularised leader, per coordinate.

    Args:
        params: Parameters or parameter groups, as for every torch optimizer.
        lr: alpha of the paper, above 0.
        beta: Smooths the first steps, at least 0.
        l1: Weight of ``|w|``, at least 0; makes weights exactly 0.
        l2: Weight of ``w^2``, at least 0.
        initial_accumulator: Where the sums of squared gradients start, at least 0.
        proximal_start: Start from the initial weights rather than from z = 0.

    Raises:
        ValueError: A value is out of range.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.05,
        *,
        beta: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        initial_accumulator: float = 0.1,
        proximal_start: bool = False,
    ) -> None:
        if not lr > 0 or min(beta, l1, l2, initial_accumulator) < 0:
            raise ValueError(
                "`lr > 0` and `beta, l1, l2, initial_accumulator >= 0` must hold, "
                f"but got {lr=}, {beta=}, {l1=}, {l2=}, {initial_accumulator=}"
            )
        defaults = {
            "lr": lr,
            "beta": beta,
            "l1": l1,
            "l2": l2,
            "initial_accumulator": initial_accumulator,
            "proximal_start": proximal_start,
        }
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step with the gradients at hand; returns the loss of the closure, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_one(parameter, group)
        return loss

    def _step_one(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["n"] = torch.full_like(weight, group["initial_accumulator"])
            state["z"] = self._initial_z(weight, state["n"], group)
        assert weight.grad is not None
        root = state["n"].sqrt()
        state["n"].addcmul_(weight.grad, weight.grad)
        new_root = state["n"].sqrt()
        z = state["z"]
        z.add_(weight.grad).sub_((new_root - root).div_(group["lr"]).mul_(weight))
        curvature = new_root.add_(group["beta"]).div_(group["lr"]).add_(2 * group["l2"])
        # softshrink(z, l1) is z - sign(z)*l1 outside [-l1, l1] and 0 inside
        shrunk = torch.nn.functional.softshrink(z, group["l1"]) if group["l1"] else z
        # a coordinate that never had a gradient and starts at n = 0 has no curvature: it stays at 0
        weight.copy_(torch.where(curvature > 0, -shrunk / curvature, torch.zeros_like(weight)))

    @staticmethod
    def _initial_z(weight: torch.Tensor, n: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        if not group["proximal_start"]:
            return torch.zeros_like(weight)
        curvature = n.sqrt().add_(group["beta"]).div_(group["lr"]).add_(2 * group["l2"])
        z: torch.Tensor = -weight * curvature - weight.sign() * group["l1"]
        return z
