"""Outputs of a batch are taken apart."""

from __future__ import annotations

import pytest

from tuner.dispatch.pool.sending.tensors import Indivisible, split
from tuner.dispatch.request import Tensor

A, BC = b"\1\0\0\0a", b"\2\0\0\0bc"


def test_texts_are_taken_apart_by_their_lengths() -> None:
    """Each request gets the elements of its rows."""
    output = Tensor("y", "BYTES", (3, 1), A + BC + A)
    expected = [(Tensor("y", "BYTES", (2, 1), A + BC),), (Tensor("y", "BYTES", (1, 1), A),)]

    assert split([output], [2, 1]) == expected


@pytest.mark.parametrize("columns", [2, 10**12])
def test_a_shape_may_claim_texts_that_are_not_there(columns: int) -> None:
    """However many: they are not looked for."""
    with pytest.raises(Indivisible, match="other bytes"):
        split([Tensor("y", "BYTES", (2, columns), A + BC)], [1, 1])
