"""Nexus' Figure 15: variants that share a prefix."""

from __future__ import annotations

from tests.experiments.quick import quick
from tuner.experiments.nexus.fig15 import PrefixVariants, Variants


def test_variants_share_all_but_their_last_layers() -> None:
    """The answers are the same, and a further variant costs its last layer only."""
    experiment = quick(PrefixVariants)
    one, three = (experiment.measure(Variants("shared", count, 1), 0) for count in (1, 3))
    separate = experiment.measure(Variants("separate", 3, 1), 0)

    assert three.difference < 1e-5
    assert (three.memory - one.memory) * 2**20 == 2 * 64 * 100 * 4
    assert separate.memory > three.memory
    assert min(*three.throughput.values(), *separate.throughput.values()) > 0
