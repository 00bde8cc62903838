"""Blox rounds: the log, allocation, admission and placement."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.planning.packing.builders import random_loads
from tuner.errors import InvalidInput
from tuner.experiments.nexus.fig2 import example_loads
from tuner.planning.packing.load import SessionLoad
from tuner.planning.rounds.allocation import admit, nodes_for
from tuner.planning.rounds.placement import place_round
from tuner.planning.rounds.replay import InferenceJob, read_replay, write_replay
from tuner.planning.rounds.simulation import ReplayedModel, replay_rounds

JOBS = [
    InferenceJob(name="1", model="a", slo=0.2, rate=64.0, arrival=0.25),
    InferenceJob(name="2", model="b", slo=0.25, rate=32.5, arrival=61.0),
]


def test_the_form_of_the_report_is_read(tmp_path: Path) -> None:
    """Angle brackets, comments and empty lines; the jobs come in the order of their arrivals."""
    (tmp_path / "log").write_text("# jobs\n\n<2,b,250,32.5,61>\n<1, a, 200, 64, 0.25>\n")

    assert read_replay(tmp_path / "log") == JOBS


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All digits, also of numpy's numbers; sorted by arrival. A name that would break a line is refused."""
    drawn = [job._replace(slo=np.float64(job.slo), rate=np.float64(job.rate)) for job in JOBS]
    for jobs in (JOBS, drawn):
        write_replay(tmp_path / "log", jobs[::-1])

        assert read_replay(tmp_path / "log") == JOBS
    with pytest.raises(ValueError, match="hold no commas"):
        write_replay(tmp_path / "log", [JOBS[0]._replace(model="a, b")])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1, a, 200, 64", "line 2: has 4 fields"),
        ("1, a, 200, many, 0", "line 2: inputRequest_rate 'many' is not a number"),
        ("1, a, -200, 64, 0", "line 2: slo and inputRequest_rate must be positive"),
        ("1, a, 200, nan, 0", "line 2: slo and inputRequest_rate must be positive"),
        ("1, a, 200, 1e300, 0", "line 2: inputRequest_rate must be at most 1e\\+09, but is 1e\\+300"),
        ("1, a, 200, 64, 1e308", "line 2: arrival_t must be at most"),
        ("1, , 200, 64, 0", "line 2: has no job_id or no model_name"),
        ("0, a, 200, 64, 0", "line 2: job 0 is there already"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, line: str, words: str) -> None:
    """With their number."""
    (tmp_path / "log").write_text(f"0, a, 200, 64, 0\n{line}\n")

    with pytest.raises(InvalidInput, match=words):
        read_replay(tmp_path / "log")


def test_nexus_needs_fewer_accelerators_than_fifo() -> None:
    """Two of three jobs of the paper share one; FIFO needs one for each."""
    loads = example_loads({"A": 64.0, "B": 32.0, "C": 32.0})

    assert len(nodes_for("nexus", loads)) == 2
    assert len(nodes_for("fifo", loads)) == 3


def test_the_first_jobs_are_admitted() -> None:
    """What is beyond the accelerators is dropped, the last that came first; with enough nothing is."""
    loads = random_loads(np.random.default_rng(0), 30)
    shares = [admit("nexus", loads, count).bad_rate for count in (1, 4, 8, 30)]

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] == pytest.approx(0.0)
    few = admit("fifo", loads, 3)
    assert len(few.nodes) == 3
    assert {load for node in few.nodes for load, _ in node.loads} <= {0, 1, 2, 3}


def test_jobs_that_need_every_accelerator_are_admitted() -> None:
    """Two that share one; a third has none left, and is dropped."""
    loads = example_loads({"A": 64.0, "B": 32.0, "C": 32.0})

    assert admit("nexus", loads[:2], 1).bad_rate == 0.0
    assert admit("nexus", loads, 1).served == 96.0


def test_a_job_that_is_never_in_time_leaves_its_accelerator_to_others() -> None:
    """It is dropped; those after it are served."""
    never = SessionLoad(name="never", latency=np.array([0.0, 0.3]), budget=0.5, rate=1.0)
    loads = [never, *example_loads({"A": 64.0})]

    for rule in ("nexus", "fifo"):
        admitted = admit(rule, loads, 1)

        assert [node.loads for node in admitted.nodes] == [((1, 64.0),)]
        assert admitted.bad_rate == pytest.approx(1 / 65)


def test_a_rate_far_beyond_the_accelerators_is_served_as_far_as_they_go() -> None:
    """One accelerator serves its 160 requests/s; what could never be packed is counted as dropped."""
    (load,) = example_loads({"A": 1e9})

    admitted = admit("nexus", [load], 1)

    assert (admitted.served, admitted.offered) == (160.0, 1e9)


def test_placement_of_the_report() -> None:
    """Table 1 and 2: model A stays on two accelerators, C replaces B; one swap."""
    before = [frozenset("A"), frozenset("A"), frozenset("B")]
    nodes = [frozenset("C"), frozenset("A"), frozenset("A")]
    seconds = {"A": 1.0, "B": 2.0, "C": 3.0}

    placed = place_round("locality", nodes, before, seconds, np.random.default_rng(0))

    assert placed.loaded == [frozenset("A"), frozenset("A"), frozenset("C")]
    assert (placed.hits, placed.swaps, placed.seconds) == (2, 1, 3.0)
    many = [place_round("random", nodes, before, seconds, np.random.default_rng(s)) for s in range(300)]
    assert np.mean([one.swaps for one in many]) == pytest.approx(5 / 3, abs=0.1)


def test_rounds_keep_what_was_loaded() -> None:
    """The same jobs again load nothing."""
    models = {load.name.lower(): ReplayedModel(load.latency, 0.5) for load in example_loads({"A": 1, "B": 1})}
    again = [job._replace(name=f"{job.name}'", arrival=job.arrival + 120) for job in JOBS]

    first, second, third, fourth = replay_rounds(JOBS + again, models, accelerators=2, seconds=60.0)

    assert [one.begin for one in (first, second, third, fourth)] == [0.0, 60.0, 120.0, 180.0]
    assert [one.placed.swaps for one in (first, second, third, fourth)] == [1, 1, 0, 0]
    assert third.placed.hit_rate == 1.0


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.7, 1 / 3, 60.0])
def test_every_job_is_in_one_round(seconds: float) -> None:
    """Also one that arrives as a round ends, where `arrival // seconds` and the product round differently."""
    jobs = [JOBS[0]._replace(name=str(number), arrival=number * seconds) for number in range(1, 60)]
    (load,) = example_loads({"A": 1})

    rounds = replay_rounds(jobs, {"a": ReplayedModel(load.latency, 0.5)}, accelerators=1, seconds=seconds)
    met = [(one.begin, one.jobs) for one in islice(rounds, len(jobs) + 1)]

    assert all(count > 0 for _, count in met)
    assert sum(count for _, count in met) == len(jobs)
    assert [begin for begin, _ in met] == sorted({begin for begin, _ in met})
