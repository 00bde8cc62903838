"""FTRL-Proximal against a computation written from the formulas, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tuner.agents.rrl.network.ftrl import ACCUMULATOR, Ftrl


def reference(
    weight: np.ndarray,
    gradients: np.ndarray,
    *,
    lr: float,
    l1: float,
    l2: float,
    proximal: bool,
) -> Iterator[np.ndarray]:
    """McMahan et al. 2013, algorithm 1, with TensorFlow's meaning of l1 and l2; yields each weight."""
    w = np.array(weight, dtype=np.float64)
    n = np.full_like(w, ACCUMULATOR)
    z = np.zeros_like(w)
    if proximal:
        z = -w * (np.sqrt(n) / lr + 2 * l2) - np.sign(w) * l1
    for g in gradients:
        n_new = n + g**2
        sigma = (np.sqrt(n_new) - np.sqrt(n)) / lr
        z = z + g - sigma * w
        n = n_new
        quadratic = np.sqrt(n) / lr + 2 * l2
        w = np.where(np.abs(z) <= l1, 0.0, (np.sign(z) * l1 - z) / quadratic)
        yield w


@pytest.mark.parametrize("proximal", [False, True])
@pytest.mark.parametrize(("l1", "l2"), [(0, 0), (0.05, 0), (0, 0.1), (0.02, 0.01)])
def test_every_step_equals_the_reference(l1: float, l2: float, proximal: bool) -> None:
    """Twenty steps with random gradients, every weight compared after every step."""
    generator = np.random.default_rng(3)
    start, gradients = generator.normal(size=7), generator.normal(size=(20, 7))
    weight = torch.tensor(start, requires_grad=True)
    optimizer = Ftrl([weight], 0.3, l1=l1, l2=l2, proximal_start=proximal)
    expected = reference(start, gradients, lr=0.3, l1=l1, l2=l2, proximal=proximal)

    for gradient, wanted in zip(gradients, expected, strict=True):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_first_step_by_hand() -> None:
    """w = 1, g = 2, lr = 0.5: sigma = (sqrt(4.1) - sqrt(0.1)) / lr, z = g - sigma, w' = -z lr / sqrt(4.1)."""
    weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    weight.grad = torch.tensor([2.0], dtype=torch.float64)

    Ftrl([weight], 0.5).step()

    assert weight.item() == pytest.approx(-(2 - 2 * (4.1**0.5 - 0.1**0.5)) * 0.5 / 4.1**0.5)


def test_proximal_start_without_regularisation_is_adagrad() -> None:
    """The known identity, against torch's own Adagrad."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(5, generator=generator, dtype=torch.float64)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    ftrl = Ftrl([ours], 0.2, proximal_start=True)
    adagrad = torch.optim.Adagrad([theirs], 0.2, initial_accumulator_value=0.1, eps=0.0)

    for _ in range(15):
        gradient = torch.randn(5, generator=generator, dtype=torch.float64)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        adagrad.step()
        ftrl.step()

    torch.testing.assert_close(ours, theirs)


def test_l1_makes_weights_exactly_zero() -> None:
    """What FTRL is known for: sparse weights."""
    weight = torch.zeros(2, requires_grad=True)
    optimizer = Ftrl([weight], 0.1, l1=1.0)
    for _ in range(5):
        weight.grad = torch.tensor([0.1, 3.0])
        optimizer.step()

    assert weight[0].item() == 0.0
    assert weight[1].item() < 0.0


def test_finds_the_bottom_of_a_parabola() -> None:
    """Gradients of one step are gone in the next."""
    weight = torch.tensor([5.0], requires_grad=True)
    optimizer = Ftrl([weight], 1.0, proximal_start=True)

    for _ in range(200):
        ((weight - 2.0) ** 2).sum().backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()

    assert weight.item() == pytest.approx(2.0, abs=0.01)
