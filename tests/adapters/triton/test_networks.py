"""The networks that the embedded Triton serves, executed by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.adapters.triton.embedded.networks import build_cnn, build_deep, build_mlp

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("network", "shape", "outputs"),
    [
        (build_mlp((8, 32, 4)), (8,), 4),
        (build_cnn((4, 4), classes=3), (3, 32, 32), 3),
        (build_deep(width=32, layers=5, ends=8), (8,), 8),
    ],
)
def test_rows_of_a_batch_are_independent(network: object, shape: tuple[int, ...], outputs: int) -> None:
    """A batch gives what its rows give alone."""
    session = onnxruntime.InferenceSession(network.SerializeToString())  # type: ignore[attr-defined]
    rows = RNG.standard_normal((3, *shape), np.float32)

    (together,) = session.run(None, {"input": rows})

    assert together.shape == (3, outputs)
    for number in range(3):
        (alone,) = session.run(None, {"input": rows[number : number + 1]})
        np.testing.assert_allclose(together[number], alone[0], rtol=1e-4, atol=1e-4)


def test_a_layer_that_is_applied_again_and_again_is_stored_once() -> None:
    """However deep the network is; it is still executed each time."""
    deep = build_deep(width=64, layers=50, ends=16)

    assert len(deep.SerializeToString()) < 4 * (64 * 64 + 2 * 64 * 16) + 10_000
    assert sum(node.op_type == "Gemm" for node in deep.graph.node) == 52
