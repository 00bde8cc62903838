"""Arrival processes against closed forms, and their texts."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.profiler.load.timetable import Timetable
from tuner.workload.arrivals import Arrival, Constant, Gamma, Poisson, Ramp, Steps
from tuner.workload.notation import parse_arrival
from tuner.workload.trace import Trace


def send_times(arrival: Arrival, count: int, seed: int = 0) -> np.ndarray:
    return np.array(list(islice(arrival.times(np.random.default_rng(seed)), count)))


def dispersion(times: np.ndarray, width: float) -> float:
    counts = np.bincount((times // width).astype(int))[:-1]
    return float(counts.var(ddof=1) / counts.mean())


def test_poisson_has_mean_and_dispersion_of_a_poisson_process() -> None:
    """Rate 200 gives 200 requests/s and an index of dispersion of 1."""
    times = send_times(Poisson(200), 40_000)

    assert 40_000 / times[-1] == pytest.approx(200, rel=0.02)
    assert dispersion(times, 0.1) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("shape", [0.25, 4.0])
def test_dispersion_of_gamma_gaps_tends_to_one_over_the_shape(shape: float) -> None:
    """Over long sub-intervals the index of dispersion is the squared variation of the gaps."""
    times = send_times(Gamma(shape, 200), 80_000)

    assert 80_000 / times[-1] == pytest.approx(200, rel=0.03)
    assert dispersion(times, 1.0) == pytest.approx(1 / shape, rel=0.25)


def test_constant_gaps_are_equal() -> None:
    """Rate 100 sends every 10 ms, without drift."""
    assert send_times(Constant(100), 1000)[[0, 999]] == pytest.approx([0.01, 10.0])


def test_steps_change_the_rate_at_their_time_and_keep_the_last() -> None:
    """10 s at 100, 10 s at 400, then 400 without end."""
    times = send_times(Steps(((10, 100), (10, 400))), 9000)

    assert np.histogram(times, [0, 10, 20])[0] == pytest.approx([1000, 4000], rel=0.1)
    assert times[-1] > 20


def test_ramp_integrates_its_rate() -> None:
    """From 100 to 300 in 20 s: the first half brings 1500 requests, the second 2500."""
    times = send_times(Ramp(20, 100, 300), 6000)

    assert np.histogram(times, [0, 10, 20])[0] == pytest.approx([1500, 2500], rel=0.08)


@pytest.mark.parametrize(
    "text",
    ["poisson:200", "gamma:0.5:200", "constant:100", "step:30s@100,30s@300", "ramp:60s@100-300"],
)
def test_text_is_read_back_as_the_same_process(text: str) -> None:
    """str() of a process is what parse_arrival reads, and the same seed sends at the same times."""
    arrival = parse_arrival(text)

    assert parse_arrival(str(arrival)) == arrival
    assert send_times(arrival, 300, seed=3).tolist() == send_times(parse_arrival(text), 300, seed=3).tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poison:3", "not an arrival process"),
        ("poisson:fast", "'fast'"),
        ("poisson:0", "a rate of 0"),
        ("poisson:nan", "a rate of nan"),
        ("gamma:-1:200", "gamma shape"),
        ("step:30@100", "'30' is not a duration"),
        ("step:0s@100", "not a positive duration"),
        ("trace:/nowhere/at/all", "cannot be read"),
        ("trace:", "not an arrival process"),
    ],
)
def test_nonsense_is_refused_with_the_setting(text: str, message: str) -> None:
    """The error names the setting and what is wrong."""
    with pytest.raises(InvalidInput, match=message) as caught:
        parse_arrival(text)

    assert str(caught.value).startswith("--arrival")


def test_trace_begins_at_zero_and_skips_heading_and_comments(tmp_path: Path) -> None:
    """The first column of a CSV counts; times are relative to the first."""
    file = tmp_path / "trace.csv"
    file.write_text("time,tenant\n# comment\n1000.5,a\n\n1000.75,b\n1002.5,a\n")

    assert send_times(parse_arrival(f"trace:{file}"), 10).tolist() == [0.0, 0.25, 2.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\n2\nx\n", "line 3: 'x'"),
        ("1\n3\n2\n", "line 3 goes back"),
        ("1\n\udcff\udcfe\n", r"line 2: '\\xff"),
        ("1\ninf\n", "line 2: 'inf' is not finite"),
        ("time\n", "no times"),
    ],
)
def test_damaged_trace_names_the_line(tmp_path: Path, content: str, message: str) -> None:
    """A trace that cannot be followed says where."""
    file = tmp_path / "trace"
    file.write_text(content, encoding="utf-8", errors="surrogateescape")

    with pytest.raises(InvalidInput, match=message):
        Trace(file)


def test_rate_of_a_schedule_cannot_be_set() -> None:
    """A schedule has its own rates."""
    with pytest.raises(InvalidInput, match="has its own rates"):
        parse_arrival("step:1s@10").at_rate(20)


def test_timetable_keeps_what_was_due_before_a_change() -> None:
    """A sender that is behind still owes the old process's requests up to the change."""
    timetable = Timetable(Constant(10), np.random.default_rng(0), start=100.0)
    timetable.replace(Constant(100), at=100.35)
    times = []
    for _ in range(5):
        times.append(timetable.next)
        timetable.advance()

    assert times == pytest.approx([100.1, 100.2, 100.3, 100.36, 100.37])


def test_timetable_forgets_what_was_due_after_a_change() -> None:
    """A slow process does not delay the beginning of a fast one."""
    timetable = Timetable(Constant(0.01), np.random.default_rng(0), start=0.0)
    timetable.replace(Constant(100), at=5.0)

    assert timetable.next == pytest.approx(5.01)


def test_timetable_of_an_ended_trace_waits_for_a_change(tmp_path: Path) -> None:
    """After the last request of a trace nothing is due, until another process begins."""
    file = tmp_path / "trace"
    file.write_text("5\n")
    timetable = Timetable(Trace(file), np.random.default_rng(0), start=1.0)
    timetable.advance()
    ended = timetable.next
    timetable.replace(Constant(10), at=7.0)

    assert ended == np.inf
    assert timetable.next == pytest.approx(7.1)
