"""The small network as plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tuner.agents.rrl.network.network import forward, initial_weights, layer_shapes


def test_paper_network_has_its_shapes() -> None:
    """Section 5.1: 256 and 64 units and one output; here for four features."""
    assert layer_shapes(4, (256, 64)) == [(4, 256), (256,), (256, 64), (64,), (64, 1), (1,)]


def test_fresh_network_predicts_zero() -> None:
    """Its output layer is 0: it claims nothing before it was trained."""
    weights = initial_weights(3, (16, 8), np.random.default_rng(0))

    assert forward(weights, np.ones((5, 3), np.float32)).tolist() == [0.0] * 5


def test_forward_equals_torch() -> None:
    """Random weights, against torch's layers."""
    generator = np.random.default_rng(1)
    weights = tuple(generator.normal(size=s).astype(np.float32) for s in layer_shapes(4, (12, 6)))
    features = generator.uniform(size=(9, 4)).astype(np.float32)
    values = torch.from_numpy(features)
    for i in range(0, 6, 2):
        values = values @ torch.from_numpy(weights[i]) + torch.from_numpy(weights[i + 1])
        values = values.relu() if i < 4 else values

    assert forward(weights, features) == pytest.approx(values[:, 0].numpy(), rel=1e-4)


def test_weights_are_read_only() -> None:
    """They are shared with a thread that trains a copy."""
    weights = initial_weights(2, (4,), np.random.default_rng(0))

    with pytest.raises(ValueError, match="read-only"):
        weights[0][0, 0] = 1.0
