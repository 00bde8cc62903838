"""FTRL-Proximal, of which torch has none.

McMahan et al., "Ad click prediction: a view from the trenches", KDD'13, algorithm 1, per coordinate, in
the form TensorFlow gives it: accumulators start at 0.1, the learning-rate power is -1/2, and the L2
term counts twice (``l1*|w| + l2*w^2``). Of each coordinate it keeps ``n``, the sum of squared
gradients, and ``z``, from which the weight follows::

    n'    = n + g^2
    sigma = (sqrt(n') - sqrt(n)) / lr
    z'    = z + g - sigma * w
    w'    = 0                                                if |z'| <= l1
            (sign(z') * l1 - z') / (sqrt(n') / lr + 2 * l2)   otherwise

Where we differ: TensorFlow starts with z = 0, which forgets the initial weights in the first step. That
is right for the linear models FTRL was made for and wrong for a network, whose hidden units would lose
the random weights in which they differ. ``proximal_start`` therefore begins with the z that the initial
weights follow from; without regularisation this is AdaGrad.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["Ftrl"]

ACCUMULATOR = 0.1
"""Where the sums of squared gradients start, as in TensorFlow."""


class Ftrl:
    """Follow the regularised leader, per coordinate.

    Args:
        weights: What is optimised, in place.
        lr: alpha of the paper, above 0; its beta is 0.
        l1: Weight of ``|w|``, at least 0; makes weights exactly 0.
        l2: Weight of ``w^2``, at least 0.
        proximal_start: Start from the initial weights rather than from z = 0.

    Raises:
        ValueError: A value is out of range.
    """

    def __init__(
        self,
        weights: Sequence[torch.Tensor],
        lr: float,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        proximal_start: bool = False,
    ) -> None:
        if not lr > 0 or min(l1, l2) < 0:
            raise ValueError(f"`lr > 0` and `l1, l2 >= 0` must hold, but got {lr=}, {l1=}, {l2=}")
        self._lr, self._l1, self._l2 = lr, l1, l2
        self._weights = weights
        with torch.no_grad():
            self._n = [torch.full_like(weight, ACCUMULATOR) for weight in weights]
            self._z = [
                -weight * self._curvature(n.sqrt()) - weight.sign() * l1
                if proximal_start
                else torch.zeros_like(weight)
                for weight, n in zip(weights, self._n, strict=True)
            ]

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients at hand, and clear them."""
        for weight, n, z in zip(self._weights, self._n, self._z, strict=True):
            if weight.grad is None:
                continue
            root = n.sqrt()
            n.addcmul_(weight.grad, weight.grad)
            new_root = n.sqrt()
            z.add_(weight.grad).sub_((new_root - root).div_(self._lr).mul_(weight))
            # softshrink(z, l1) is z - sign(z)*l1 outside [-l1, l1] and 0 inside
            shrunk = torch.nn.functional.softshrink(z, self._l1) if self._l1 else z
            weight.copy_(-shrunk / self._curvature(new_root))
            weight.grad = None

    def _curvature(self, root: torch.Tensor) -> torch.Tensor:
        return root.div(self._lr).add_(2 * self._l2)
