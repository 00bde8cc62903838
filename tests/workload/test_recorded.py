"""Recorded arrivals of any system as a workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.workload import workload
from tuner.workload.trace import Trace

SECONDS = [*range(0, 100, 2), *range(100, 200)]
"""Twice as many requests in the second half."""


def rates(path: Path, windows: int) -> np.ndarray:
    """Rates of an episode, requests/s."""
    return workload(f"trace:{path}", 30.0).rates(windows, np.random.default_rng(0))


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{s}\n" for s in SECONDS),
        "arrival,tenant\n" + "".join(f"{1.7e9 + s:.3f},a\n" for s in SECONDS),
        "start\n" + "".join(f"2024-05-10T07:{10 + s // 60}:{s % 60:02}Z\n" for s in SECONDS),
        "".join(f"2024-05-10 07:{10 + s // 60}:{s % 60:02}.0000000,5\n" for s in SECONDS),
    ],
    ids=["seconds", "seconds of a CSV", "dates of a CSV", "dates without a heading"],
)
def test_the_rate_follows_the_times_in_the_first_column(tmp_path: Path, text: str) -> None:
    """As seconds or as dates; a cluster is simulated with the same file."""
    path = tmp_path / "trace.csv"
    path.write_text(text)

    np.testing.assert_allclose(rates(path, 4), [20, 20, 40, 40], rtol=0.05)
    np.testing.assert_allclose(Trace(path).seconds, SECONDS, atol=1e-6)


def test_it_prints_as_the_spec_that_makes_it(tmp_path: Path) -> None:
    """Its gaps are those of the file unless given."""
    path = tmp_path / "trace.csv"
    path.write_text("".join(f"{s}\n" for s in SECONDS))
    one = workload(f"trace:{path}", 5.0)

    assert str(one) == f"trace:{path},burstiness=100.0"
    assert workload(str(one), 5.0) == one
    assert workload(f"trace:{path},burstiness=1", 5.0).burstiness == 1


def test_a_burstiness_of_next_to_nothing_is_refused(tmp_path: Path) -> None:
    """As for all workloads: millions of requests would come at one instant; 0 is that of the trace."""
    path = tmp_path / "trace.csv"
    path.write_text("".join(f"{s}\n" for s in SECONDS))

    with pytest.raises(InvalidInput, match=r"burstiness=1e-09 is not between 0\.001 and inf"):
        workload(f"trace:{path},burstiness=1e-9", 5.0)
    assert workload(f"trace:{path},burstiness=0", 5.0) == workload(f"trace:{path}", 5.0)


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_rounded_times_are_no_bursts(tmp_path: Path, digits: int) -> None:
    """A log in whole seconds, of clients that know nothing of each other; windows are shorter than that."""
    path, seconds = tmp_path / "trace.csv", np.cumsum(np.random.default_rng(3).exponential(1 / 200, 10000))
    path.write_text("".join(f"{s:.{digits}f}\n" for s in seconds))

    assert workload(f"trace:{path}", 5.0).burstiness == pytest.approx(1, rel=0.1)
    within = rates(path, 100)[2:-2]  # 100 requests each; the first and the last second may be cut
    np.testing.assert_allclose(within, 30, rtol=0.5)


@pytest.mark.parametrize("digits", [0, 3])
def test_rounded_times_may_be_seconds_since_1970(tmp_path: Path, digits: int) -> None:
    """Which a computer does not have exactly; nor does a long pause change what the rest shows."""
    gaps = np.random.default_rng(3).exponential(2 * 10.0**-digits, 10000)
    gaps[5000] = 20000
    path = tmp_path / "trace.csv"
    path.write_text("".join(f"{1.7e9 + s:.{digits}f}\n" for s in np.cumsum(gaps)))

    assert workload(f"trace:{path}", 5.0).burstiness == pytest.approx(1, rel=0.1)


def test_requests_that_come_together_are_bursts(tmp_path: Path) -> None:
    """The same time is no rounded one where the others have finer times."""
    path, seconds = tmp_path / "trace.csv", np.cumsum(np.random.default_rng(3).uniform(0.5, 1.5, 500))
    path.write_text("".join(f"{s:.6f}\n" for s in np.repeat(seconds, 20)))

    assert workload(f"trace:{path}", 5.0).burstiness == pytest.approx(0.01)


def test_times_in_another_column_are_told(tmp_path: Path) -> None:
    """With the line, and where they belong."""
    path = tmp_path / "trace.csv"
    path.write_text("job_name,start_time\nj7,86400\n")

    with pytest.raises(InvalidInput, match=r"trace:.*line 2: 'j7' is not a time.*into the first column"):
        workload(f"trace:{path}", 5.0)


def dated(*rests: str) -> str:
    """A line for each, two in every second from 07:10:00 on."""
    return "".join(f"2024-05-10 07:10:{number // 2:02}{rest}\n" for number, rest in enumerate(rests))


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        (dated(",978", ",977", ",100"), 1, "07:10:00.978"),
        (dated(",978 - root - INFO - a, b", ",999 - root - INFO - c"), 1, "07:10:00.978"),
        ("time\n" + dated(",000005", ",500000"), 2, "07:10:00.000005"),
    ],
    ids=["ms, not quite in order", "with text behind", "us, with a heading of one column"],
)
def test_a_decimal_comma_is_refused(tmp_path: Path, text: str, line: int, fix: str) -> None:
    """The CSV is split at it, and the fractions would be lost without a word."""
    path = tmp_path / "trace.csv"
    path.write_text(text)
    words = rf"line {line}: '.*' may have a decimal comma.*write 2024-05-10 {fix}, or.* a heading"

    for read in (lambda: workload(f"trace:{path}", 5.0), lambda: Trace(path)):
        with pytest.raises(InvalidInput, match=words):
            read()


@pytest.mark.parametrize(
    "text",
    [
        "time,tokens\n" + dated(",100", ",200", ",300"),
        dated(",87", ",1024", ",9", ",2048"),
        dated(",100", ",200", ".0,300"),
        dated("Z,100", "Z,200", "Z,300"),
        dated(", 100", ", 200", ", 300"),
        dated(",100,5", ",200,5", ",n/a,5"),
    ],
    ids=["heading", "of other lengths", "a point", "time zone", "spaces", "no number"],
)
def test_a_column_of_whole_numbers_is_no_fraction(tmp_path: Path, text: str) -> None:
    """Such as the tokens of a request: something says that they are no part of the time."""
    path = tmp_path / "trace.csv"
    path.write_text(text)

    assert Trace(path).seconds[:3].tolist() == [0, 0, 1]


@pytest.mark.parametrize("text", ["0\n1\n2024-05-10 07:10:01\n", "2024-05-10 07:10:01\n1.8e9\n"])
def test_numbers_and_dates_in_one_file_are_refused(tmp_path: Path, text: str) -> None:
    """Between them would be a gap of decades."""
    path = tmp_path / "trace.csv"
    path.write_text(text)

    with pytest.raises(InvalidInput, match=r"line [23]: .*, unlike the lines before.*one or the other"):
        Trace(path)


def test_another_trace_than_azures_is_told_how_to_be_written(tmp_path: Path) -> None:
    """The times alone are enough."""
    path = tmp_path / "trace.csv"
    path.write_text("0.5\n1.5\n")

    with pytest.raises(InvalidInput, match="other traces are written trace:FILE"):
        workload(f"azure:{path}", 5.0)
