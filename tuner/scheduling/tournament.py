"""A tournament tree: the least of many keys at once, and any key changed in logarithmic time.

One array of 2 P floats, P a power of two: the keys are the leaves ``tree[P + i]``, every inner node holds
the lesser of its children, ``tree[1]`` the least of all. Of equal keys the lowest index wins.
"""

from __future__ import annotations

import numpy as np

from tuner._jit import njit_flat

__all__ = ["key_of", "least_index", "least_key", "make_tree", "set_key", "tree_of"]


def make_tree(size: int) -> np.ndarray:
    """Return a tree for ``size`` keys, all infinite.   # (2 P,)."""
    leaves = 1 << max(size - 1, 0).bit_length()
    return np.full(2 * leaves, np.inf)


def tree_of(keys: np.ndarray) -> np.ndarray:
    """Return a tree with these keys.   # keys: (n,)."""
    tree = make_tree(keys.size)
    for index, key in enumerate(keys.tolist()):
        set_key(tree, index, float(key))
    return tree


@njit_flat
def set_key(tree: np.ndarray, index: int, key: float) -> None:
    """Change a key. ``tree`` is modified in place."""
    node = tree.size // 2 + index
    tree[node] = key
    while node > 1:
        key = min(key, tree[node ^ 1])  # of this node and its sibling
        node >>= 1
        if tree[node] == key:
            return
        tree[node] = key


@njit_flat
def key_of(tree: np.ndarray, index: int) -> float:
    """Return the key of an index."""
    return float(tree[tree.size // 2 + index])


@njit_flat
def least_key(tree: np.ndarray) -> float:
    """Return the least key; infinite if none is set."""
    return float(tree[1])


@njit_flat
def least_index(tree: np.ndarray) -> int:
    """Return the lowest index with the least key."""
    leaves = tree.size // 2
    node = 1
    while node < leaves:
        node *= 2
        if tree[node] != tree[node // 2]:
            node += 1
    return node - leaves
