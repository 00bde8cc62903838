"""Plans from profiles of observed servers, and what their batching knobs do to a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cluster.scenario import Scenario
from tuner.errors import InvalidInput, StorageError
from tuner.files.yaml_file import load_yaml
from tuner.knobs import Configuration
from tuner.measurement import Measurement
from tuner.planning.pools.catalogue import Line, make_offers
from tuner.planning.pools.learned import LearnedFile, read_observations, with_profiles
from tuner.planning.pools.paper import paper_catalogue
from tuner.planning.pools.plan import PoolPlan
from tuner.planning.pools.planner import plan_scenario
from tuner.profile import BatchingProfile
from tuner.workload.sizes import parse_sizes

PAPER = parse_sizes("paper")


ROLES = {"max_batch_size": "batch", "instances": "parallelism"}


def window(
    alpha: float = 0.0003,
    beta: float = 0.004,
    *,
    executions: int = 100,
    largest: int = 1000,
    disturbed: tuple[str, ...] = (),
    batches: dict[int, int] | None = None,
    **knobs: float,
) -> dict[str, object]:
    """A measurement as `tuner observe --json` writes it."""
    profile = BatchingProfile(alpha=alpha, beta=beta, largest=largest, executions=executions)
    measured = Measurement(
        start=0.0,
        end=1.0,
        configuration=Configuration(knobs or {"max_batch_size": 1.0, "instances": 1.0}),
        requests=100,
        arrival_rate=100.0,
        profile=profile if executions else None,
        disturbed=disturbed,
        batches=batches or {},
    )
    return {**measured.to_json(), "roles": ROLES}


def observed(path: Path, *windows: object) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in windows))
    return path


def plan_with(tmp_path: Path, learned: object, **fields: Any) -> PoolPlan:
    (tmp_path / "learned.json").write_text(json.dumps(learned))
    file = load_yaml(tmp_path / "learned.json", LearnedFile) if learned else None
    scenario = Scenario(
        budget=2.5,
        sessions=[{"name": "a", "model": "rm2", "slo_ms": 350, "sizes": "paper"}],  # type: ignore[arg-type]
        **fields,
    )
    return plan_scenario(scenario, file)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17, 24, 25, 40, 1000])
@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_large_queries_are_sent_in_parts(size: int, parallel: int) -> None:
    """A request executes in rounds of full parts, and the rest in the last round."""
    line = Line(alpha_ms=1, beta_ms=5, max_batch=8, parallel=parallel)

    parts = [8] * (size // 8) + ([size % 8] if size % 8 else [])
    rounds = [parts[first : first + parallel] for first in range(0, len(parts), parallel)]
    expected = sum(max(part + 5 for part in one) for one in rounds) / 1e3
    assert line.latency(np.array([size]))[0] == pytest.approx(expected)


def test_knobs_never_make_a_larger_query_faster() -> None:
    """Times in parts do not fall with the size, and one part is the line itself."""
    sizes = np.arange(1001)
    for parallel in (1, 2, 5):
        assert (
            np.diff(Line(alpha_ms=0.4, beta_ms=3, max_batch=7, parallel=parallel).latency(sizes)) >= 0
        ).all()
    whole = Line(alpha_ms=0.4, beta_ms=3)
    np.testing.assert_allclose(
        whole.latency(sizes)[1:], Line(alpha_ms=0.4, beta_ms=3, max_batch=2000).latency(sizes)[1:]
    )


def test_observations_of_the_latest_configuration_count(tmp_path: Path) -> None:
    """Means are weighted by executions; other configurations and disturbed windows do not count."""
    path = observed(
        tmp_path / "o.jsonl",
        window(0.9, 0.9, max_batch_size=4.0, instances=1.0),
        window(0.002, 0.010, executions=300, largest=12, max_batch_size=16.0, instances=2.0),
        window(0.9, 0.9, disturbed=("foreign CPU",), max_batch_size=16.0, instances=2.0),
        window(0.006, 0.030, executions=100, largest=16, max_batch_size=16.0, instances=2.0),
        window(executions=0, max_batch_size=16.0, instances=2.0),
    )

    (found,) = read_observations(path)

    assert (found.line.alpha_ms, found.line.beta_ms) == (pytest.approx(3.0), pytest.approx(15.0))  # type: ignore[comparison-overlap]
    assert (found.line.max_batch, found.line.parallel) == (16, 2)
    assert (found.largest, found.executions) == (16, 400)


@pytest.mark.parametrize("counted", [True, False])
def test_quiet_windows_do_not_flatten_what_loaded_ones_show(tmp_path: Path, counted: bool) -> None:
    """Batches of 1 in 5 ms, ten times as often as batches of up to 16 in 0.5 ms each and 4.5 ms."""
    few, many = ({1: 1000, 2: 4}, {1: 500, 16: 500}) if counted else (None, None)
    quiet = [window(0.0, 0.005, executions=1000, largest=1, batches=few) for _ in range(10)]
    loaded = window(0.0005, 0.0045, executions=1000, largest=16, batches=many)

    (found,) = read_observations(observed(tmp_path / "o.jsonl", *quiet, loaded))

    assert (found.line.alpha_ms, found.line.beta_ms) == (pytest.approx(0.5), pytest.approx(4.5))  # type: ignore[comparison-overlap]
    assert (found.largest, found.executions) == (16, 11_000 if counted else 1000)


def test_of_a_sweep_the_fastest_configuration_is_planned_with(tmp_path: Path) -> None:
    """The knobs under which the requests that come take least on average."""
    rows = [
        {
            "configuration": {},
            "windows": [window(0.0003, 0.001, largest=8, max_batch_size=8.0, instances=1.0)],
        },
        {
            "configuration": {},
            "windows": [window(0.0002, 0.002, largest=64, max_batch_size=64.0, instances=1.0)],
        },
        {"configuration": {}, "windows": [], "refused": "no"},
    ]
    knobs = [{"name": name, "role": role} for name, role in ROLES.items()]
    (tmp_path / "sweep.json").write_text(json.dumps({"version": 1, "knobs": knobs, "rows": rows}))

    plan = plan_with(tmp_path, {"g4dn.xlarge": {"rm2": "sweep.json"}})

    assert len(read_observations(tmp_path / "sweep.json")) == 2
    assert "0.2 ms per item" in plan.offers.notes[0]
    assert plan.offers.latency[0, 128] == pytest.approx(2 * (0.064 * 0.2 + 0.002))


def test_knobs_are_known_by_their_roles_alone(tmp_path: Path) -> None:
    """A server's own names mean nothing to a plan."""
    one = window(largest=64, size=32.0, threads=3.0) | {"roles": {"size": "batch", "threads": "parallelism"}}

    (found,) = read_observations(observed(tmp_path / "o.jsonl", one))

    assert (found.line.max_batch, found.line.parallel) == (32, 3)


@pytest.mark.parametrize("roles", [ROLES, {}])
def test_a_limit_above_any_request_is_none(tmp_path: Path, roles: dict[str, str]) -> None:
    """However large the server's is, or the largest batch that it executed."""
    one = window(largest=20_000, max_batch_size=65_536.0, instances=20_000.0) | {"roles": roles}

    (found,) = read_observations(observed(tmp_path / "o.jsonl", one))

    assert found.line.max_batch is None
    assert found.line.parallel == (1000 if roles else 1)
    assert found.largest == 20_000


def test_a_file_from_before_knobs_had_roles_is_read_with_care(tmp_path: Path) -> None:
    """Nobody knows which knob limits its batches: none is planned larger than the largest one seen."""
    old = window(largest=500, max_batch_size=640.0, instances=2.0)
    del old["roles"]
    path = observed(tmp_path / "old.jsonl", old)

    (found,) = read_observations(path)
    notes = plan_with(tmp_path, {"g4dn.xlarge": {"rm2": path.name}}).offers.notes

    assert (found.line.max_batch, found.line.parallel) == (500, 1)
    assert "do not say what its knobs do" in notes[-1]


def test_a_plan_follows_the_knobs_of_the_servers(tmp_path: Path) -> None:
    """A knob that makes one type slower moves the pool to other types, and the plan says what was learned."""
    observed(tmp_path / "slow.jsonl", window(0.0012, 0.02, max_batch_size=1.0, instances=4.0))
    before = plan_with(tmp_path, {})
    after = plan_with(tmp_path, {"r5n.large": {"rm2": "slow.jsonl"}})

    assert before.chosen.counts["r5n.large"] == 13
    assert after.chosen.counts["r5n.large"] < 5
    assert after.chosen.bound < before.chosen.bound
    assert after.offers.notes[0].startswith(
        "rm2 on r5n.large was learned: 1.2 ms per item and 20 ms per execution"
    )


def test_profiles_may_be_written_out(tmp_path: Path) -> None:
    """As in a catalogue: a line or a table; also of a model that the type did not have."""
    table = {"1": 5.0, "1000": 300.0}
    learned = {"g4dn.xlarge": {"new": {"alpha_ms": 0.1, "beta_ms": 1}}, "r5n.large": {"new": table}}
    (tmp_path / "learned.json").write_text(json.dumps(learned))
    types, notes = with_profiles(
        paper_catalogue(), load_yaml(tmp_path / "learned.json", LearnedFile), "new", PAPER
    )

    offers = make_offers(types, "new", PAPER)
    assert offers.names == ("g4dn.xlarge", "r5n.large")
    assert notes == ()
    assert offers.latency[:, 1000] == pytest.approx([0.101, 0.300])


def test_what_goes_beyond_what_was_seen_is_noted(tmp_path: Path) -> None:
    """Extrapolation, and one size of batch, from which nothing can be known of others."""
    observed(tmp_path / "small.jsonl", window(0.0, 0.01, largest=8))

    notes = plan_with(tmp_path, {"g4dn.xlarge": {"rm2": "small.jsonl"}}).offers.notes

    assert "rm2 on g4dn.xlarge is extrapolated from batches of 8 items to 1000" in notes
    assert "rm2 on g4dn.xlarge saw one size of batch only, and takes larger ones for as fast" in notes


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        ({"p3": {"rm2": {"alpha_ms": 1, "beta_ms": 1}}}, "p3: is not in the catalogue; use g4dn.xlarge"),
        ({"g4dn.xlarge": {"rm": {"alpha_ms": 1, "beta_ms": 1}}}, "hold no profile of rm2, but of rm; call"),
        ({"g4dn.xlarge": {}}, "--profiles: hold no profile of rm2; call it"),
        ({"g4dn.xlarge": {"rm2": "none.jsonl"}}, "there is no file"),
        ({"g4dn.xlarge": {"rm2": {"alpha_ms": -1, "beta_ms": 1}}}, "must be greater than or equal to 0"),
        ({"g4dn.xlarge": "gpu.jsonl"}, "must be a group"),
        ({"g4dn.xlarge": {"rm2": "empty.jsonl"}}, "holds no undisturbed window with a profile"),
        ({"g4dn.xlarge": {"rm2": "text.jsonl"}}, "text.jsonl line 2: is not JSON; give what `tuner observe"),
        ({"g4dn.xlarge": {"rm2": "other.jsonl"}}, "other.jsonl line 1: is no observed window"),
        ({"g4dn.xlarge": {"rm2": "damaged.jsonl"}}, "damaged.jsonl line 1: has a damaged profile"),
        ({"g4dn.xlarge": {"rm2": "batches.jsonl"}}, "batches.jsonl line 1: has damaged batches"),
        ({"g4dn.xlarge": {"rm2": "negative.jsonl"}}, "has a damaged profile"),
        ({"g4dn.xlarge": {"rm2": "endless.jsonl"}}, "endless.jsonl line 1: has a damaged profile"),
        ({"g4dn.xlarge": {"rm2": "instant.jsonl"}}, "instant.jsonl line 1: has a damaged profile"),
        ({"g4dn.xlarge": {"rm2": "knobs.jsonl"}}, "knobs.jsonl line 1: has damaged knobs"),
        ({"g4dn.xlarge": {"rm2": "roles.jsonl"}}, "roles.jsonl line 1: has damaged knobs"),
        ({"g4dn.xlarge": {"rm2": "binary.jsonl"}}, "is not text"),
        ({"g4dn.xlarge": {"rm2": "sweep.json"}}, "sweep.json row 2: its windows are no list; give what"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, learned: object, said: str) -> None:
    """Which file, which line, and what to give instead."""
    observed(tmp_path / "empty.jsonl", window(executions=0), window(disturbed=("reloading",)))
    (tmp_path / "text.jsonl").write_text(json.dumps(window()) + "\nhello\n")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "damaged.jsonl").write_text(json.dumps(window() | {"profile": {"alpha": "x"}}) + "\n")
    (tmp_path / "batches.jsonl").write_text(json.dumps(window() | {"batches": {"1" * 12: 1}}) + "\n")
    negative = {"alpha": -1.0, "beta": 2.0, "largest": 1, "executions": 9}
    (tmp_path / "negative.jsonl").write_text(json.dumps(window() | {"profile": negative}) + "\n")
    instant = negative | {"alpha": 1e-300, "beta": 0.0}
    (tmp_path / "instant.jsonl").write_text(json.dumps(window() | {"profile": instant}) + "\n")
    endless = '"profile": {"alpha": 1e999, "beta": 0.0, "largest": 9, "executions": 9}, "configuration": {}'
    (tmp_path / "endless.jsonl").write_text(f"{{{endless}}}\n")
    (tmp_path / "knobs.jsonl").write_text(
        json.dumps(window() | {"configuration": {"instances": None}}) + "\n"
    )
    (tmp_path / "roles.jsonl").write_text(
        json.dumps(window() | {"roles": {"instances": ["parallelism"]}}) + "\n"
    )
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "sweep.json").write_text(json.dumps({"rows": [{"windows": [window()]}, {"windows": None}]}))

    with pytest.raises(InvalidInput) as error:
        plan_with(tmp_path, learned)

    assert said in str(error.value)


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 10_000])
def test_json_that_python_does_not_take_is_told(tmp_path: Path, text: str) -> None:
    """Lists nested beyond measure, and a number of too many digits."""
    path = tmp_path / "observed.jsonl"
    path.write_text(text)

    with pytest.raises(InvalidInput, match=r"observed\.jsonl line 1: is not JSON"):
        read_observations(path)


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    """Between the check and the reading it may vanish."""
    with pytest.raises(StorageError, match="cannot be read"):
        read_observations(tmp_path / "gone.jsonl")
