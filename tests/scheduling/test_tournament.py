"""The tournament tree against a plain list."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.scheduling.tournament import key_of, least_index, least_key, make_tree, set_key


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_equals_a_list(size: int) -> None:
    """After every change the least key and its index are those of a list; keys repeat, so that ties occur."""
    rng = np.random.default_rng(size)
    tree = make_tree(size)
    keys = [np.inf] * size

    for _ in range(200):
        index = int(rng.integers(size))
        keys[index] = float(rng.integers(5)) if rng.random() < 0.8 else np.inf
        set_key(tree, index, keys[index])
        assert least_key(tree) == min(keys)
        assert key_of(tree, index) == keys[index]
        if min(keys) < np.inf:
            assert least_index(tree) == keys.index(min(keys))


def test_a_new_tree_is_empty() -> None:
    """No key is set: the least is infinite."""

    assert least_key(make_tree(5)) == np.inf


def test_of_equal_keys_the_lowest_index_wins() -> None:
    """Also when it was set last."""
    tree = make_tree(4)
    for index in (3, 1, 2):
        set_key(tree, index, 1.0)

    assert least_index(tree) == 1
