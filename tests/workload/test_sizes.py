"""Distributions of request sizes, how they are written, and the monitor."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import InvalidInput, StorageError
from tuner.workload.sizes import LARGEST, SizeDistribution, SizeMonitor, observed_sizes, parse_sizes

ITEMS = np.arange(LARGEST + 1)


def test_the_papers_sizes_are_those_of_its_code() -> None:
    """A plain draw of the published mixture has the same shares; all sizes are tens."""
    generator = np.random.default_rng(1)
    count = 200_000
    kind = generator.random(count)
    plain = generator.lognormal(5.1, 0.2, count)
    outside = (plain < 100) | (plain > 200)
    plain = np.where(outside, generator.integers(190, 200, count), plain)
    plain = np.where(kind < 0.08, generator.integers(1, 100, count), plain)
    plain = np.where((kind >= 0.08) & (kind < 0.30), generator.integers(200, 600, count), plain)
    plain = np.where((kind >= 0.30) & (kind < 0.35), generator.integers(600, 1000, count), plain)
    tens = (np.ceil(plain / 10) * 10).astype(int)
    seen = np.bincount(tens, minlength=LARGEST + 1) / count

    sizes = parse_sizes("paper")

    assert np.abs(sizes.probability - seen).max() < 0.003
    assert set(ITEMS[sizes.probability > 0] % 10) == {0}
    assert (sizes.smallest, sizes.largest) == (10, 1000)


@pytest.mark.parametrize(
    ("text", "draw"),
    [
        ("lognormal:5.1,0.2", lambda g, n: g.lognormal(5.1, 0.2, n)),
        ("gaussian:300,100", lambda g, n: g.normal(300, 100, n)),
        ("gaussian:10,50", lambda g, n: g.normal(10, 50, n)),
    ],
)
def test_named_distributions_are_rounded_and_kept_in_range(
    text: str, draw: Callable[[np.random.Generator, int], np.ndarray]
) -> None:
    """The cumulative probabilities are those of rounded draws, with the tails at 1 and 1000."""
    drawn = np.clip(np.round(draw(np.random.default_rng(2), 200_000)), 1, LARGEST).astype(int)
    seen = np.cumsum(np.bincount(drawn, minlength=LARGEST + 1)) / drawn.size

    sizes = parse_sizes(text)

    assert sizes.name == text
    assert np.abs(np.cumsum(sizes.probability) - seen).max() < 0.005


def test_samples_follow_the_probabilities_and_the_seed() -> None:
    """Same seed, same requests; the shares are those of the distribution."""
    sizes = parse_sizes("gaussian:300,100")

    drawn = sizes.sample(np.random.default_rng(3), 100_000)

    assert (drawn == sizes.sample(np.random.default_rng(3), 100_000)).all()
    assert sizes.smallest <= drawn.min() <= drawn.max() <= sizes.largest
    assert drawn.mean() == pytest.approx(sizes.mean, rel=0.005)


def test_sizes_that_never_come_are_left_out() -> None:
    """A bell curve's far tail does not decide the largest size."""
    sizes = parse_sizes("gaussian:300,10")

    assert 350 < sizes.largest < 370
    assert sizes.probability.sum() == pytest.approx(1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_traces_are_counted(tmp_path: Path, encoding: str) -> None:
    """One size per line; comments, empty lines and the mark of some editors are skipped."""
    path = tmp_path / "sizes.txt"
    path.write_text("# items\n10\n\n10\n 30 # a large one\n10\n", encoding)

    sizes = parse_sizes(f"trace:{path}")

    assert dict(zip(ITEMS[sizes.probability > 0], sizes.probability[sizes.probability > 0], strict=True)) == {
        10: 0.75,
        30: 0.25,
    }
    assert (sizes.name, sizes.requests) == ("trace:sizes.txt", 4)
    assert parse_sizes("paper").requests == math.inf


@pytest.mark.parametrize(
    ("content", "names"),
    [("10\nx\n", "line 2"), ("0\n", "line 1"), ("1001\n", "1 to 1000"), ("# none\n", "holds no sizes")],
)
def test_bad_traces_are_refused(tmp_path: Path, content: str, names: str) -> None:
    """The line is named."""
    path = tmp_path / "sizes.txt"
    path.write_text(content)

    with pytest.raises(InvalidInput, match=names):
        parse_sizes(f"trace:{path}")


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    """As a storage error."""
    with pytest.raises(StorageError, match=r"nothing\.txt"):
        parse_sizes(f"trace:{tmp_path / 'nothing.txt'}")


@pytest.mark.parametrize(
    "text",
    [
        "uniform:1,2",
        "lognormal",
        "lognormal:5",
        "lognormal:a,b",
        "lognormal:50,1",
        "gaussian:100,0",
        "gaussian:100,nan",
        "gaussian:nan,1",
        "paper:1",
        "trace:",
    ],
)
def test_unknown_distributions_are_refused(text: str) -> None:
    """With the forms there are."""
    with pytest.raises(InvalidInput, match="gaussian:300,100"):
        parse_sizes(text)


@given(st.lists(st.lists(st.integers(1, LARGEST), max_size=12), max_size=8), st.integers(1, 10))
def test_the_monitor_remembers_the_last_queries(batches: list[list[int]], capacity: int) -> None:
    """Whatever the batches they come in, the distribution is that of the last ones."""
    monitor = SizeMonitor(capacity)
    for batch in batches:
        monitor.observe(np.array(batch, dtype=int))
    last = [size for batch in batches for size in batch][-capacity:]

    assert len(monitor) == len(last)
    if last:
        assert (monitor.distribution().probability == observed_sizes(np.array(last)).probability).all()


def test_an_empty_monitor_knows_nothing() -> None:
    """It is the caller's mistake to ask."""
    with pytest.raises(ValueError, match="no request"):
        SizeMonitor().distribution()


@pytest.mark.parametrize("size", [0, 1001])
def test_the_monitor_refuses_impossible_sizes(size: int) -> None:
    """Requests have 1 to 1000 items."""
    with pytest.raises(ValueError, match=r"1\.\.1000"):
        SizeMonitor().observe(size)


@pytest.mark.parametrize("table", [np.zeros(LARGEST + 1), np.ones(LARGEST + 1), np.ones(5)])
def test_impossible_probabilities_are_refused(table: np.ndarray) -> None:
    """All zero, a request of no items, too few."""
    with pytest.raises(ValueError, match="non-negative"):
        SizeDistribution(name="x", probability=table)
