"""Scenarios on rented instances: the pool that a file means, and its mistakes with their lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from tests.cluster.pools import pool
from tuner.cluster import simulate
from tuner.cluster.pool_trial import PoolTrial
from tuner.cluster.scenario import Scenario
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml

ROOT = Path(__file__).parents[3]
FILE = """policy: kairos
instances: [{type: g4dn.xlarge, count: 2}, {type: r5n.large, count: 9}]
catalogue: paper
sessions:
  - {name: rm2, model: rm2, slo_ms: 350, quantile: 0.99, rate: 60, arrival: poisson, sizes: paper}
budget: 2.5
requests: 20000
seed: 1
"""


def load(tmp_path: Path, text: str, use: str = "simulate") -> Scenario:
    path = tmp_path / "mixed.yaml"
    path.write_text(text)
    return load_yaml(path, Scenario, use=use)


def test_the_file_of_the_documentation(tmp_path: Path) -> None:
    """Every field of the form is read."""
    cluster = load(tmp_path, FILE)

    assert cluster.rental is not None
    assert cluster.rental.pool == {"g4dn.xlarge": 2, "r5n.large": 9}
    assert cluster.rental.cost == pytest.approx(2.393)
    assert cluster.notes == ()
    assert cluster.cluster_spec().kinds == [0, 0] + [1] * 9
    assert cluster.cluster_spec().sessions[0].latency.shape == (2, 1001)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kairos", "karios", "line 1: policy: there is no 'karios'; use one of symphony, eager"),
        (
            "{type: r5n.large, count: 9}",
            "{type: r5n.xlarge, count: 9}",
            "line 2: instances[1].type: the catalogue has no",
        ),
        (
            "count: 9",
            "count: 18",
            "line 2: instances[1].count: the catalogue has 17 of r5n.large, but the pool 18",
        ),
        ("count: 9", "count: -1", "line 2: instances[1].count: must be greater than or equal to 0"),
        ("count: 2}, {type: r5n.large, count: 9}", "count: 0}", "line 2: instances: the pool is empty"),
        ("instances:", "instance:", "line 2: instance: there is no such field; did you mean 'instances'?"),
        (
            "instances: [{type: g4dn.xlarge, count: 2}, {type: r5n.large, count: 9}]\n",
            "",
            "line 1: the file: has neither `accelerators` nor `instances`; write accelerators: 8, or",
        ),
        (
            "catalogue: paper",
            "accelerators: 3",
            "line 2: instances: stand in place of `accelerators`; give one or the other",
        ),
        ("policy: kairos\n", "", "line 1: the file: has no `policy`; write one of symphony, eager"),
        ("catalogue: paper", "catalogue: other.yaml", "line 3: catalogue: there is no file"),
        ("model: rm2", "model: rm3", "line 2: instances[0].type: g4dn.xlarge has no profile of rm3"),
        ("slo_ms: 350", "slo_ms: 0", "line 5: sessions[0].slo_ms: must be greater than 0"),
        ("slo_ms: 350", "qos_ms: 350", "line 5: sessions[0].qos_ms: is called `slo_ms` now; rename it"),
        ("quantile: 0.99", "quantile: 99", "line 5: sessions[0].quantile: must be less than 1"),
        ("rate: 60, ", "", "line 5: sessions[0]: has no rate; give requests/s"),
        (
            "arrival: poisson",
            "arrival: poison",
            "line 5: sessions[0].arrival: 'poison' is not known; write poisson, gamma:SHAPE, constant,",
        ),
        ("sizes: paper", "sizes: gauss", "line 5: sessions[0].sizes: 'gauss' is not known"),
        ("requests: 20000", "requests: 0", "line 7: requests: must be greater than or equal to 1"),
        ("requests: 20000", "queries: 20000", "line 7: queries: is called `requests` now; rename it"),
        (
            "seed: 1",
            "seconds: 5",
            "line 8: seconds: gives a time, but the scenario is measured over its `requests`",
        ),
        (
            ", sizes: paper",
            "",
            "line 5: sessions[0]: has no sizes, by which kairos distributes requests; write sizes: paper",
        ),
        (
            "policy: kairos",
            "policy: eager",
            "line 5: sessions[0].sizes: eager makes batches of requests of one size; leave sizes out",
        ),
        (
            "seed: 1",
            "options: {gard: 1}",
            "line 8: options.gard: kairos has no such option; use one of guard",
        ),
        ("seed: 1", "options: {guard: 2}", "line 8: options: guard: 2.0 is out of range"),
        ("seed: 1", "sed: 1", "line 8: sed: there is no such field; did you mean 'seed'?"),
    ],
)
def test_mistakes_name_line_and_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    """The message names file, line and field, and what to write instead."""
    assert FILE.count(old) == 1

    with pytest.raises(InvalidInput) as error:
        load(tmp_path, FILE.replace(old, new))

    assert said in str(error.value)


def test_the_example_can_be_loaded() -> None:
    """The file that ships with the documentation is complete."""
    scenario = load_yaml(ROOT / "docs" / "examples" / "mixed.yaml", Scenario)

    assert scenario.rental is not None
    assert scenario.rental.cost == pytest.approx(2.393)


def test_a_goodput_needs_no_rate(tmp_path: Path) -> None:
    """Where rates are searched, they need not be given."""
    cluster = load(tmp_path, FILE.replace("rate: 60, ", ""), "goodput")

    assert cluster.total_rate == 1.0


def test_an_oracle_of_too_many_requests(tmp_path: Path) -> None:
    """The oracle needs all requests at once; more than memory holds are refused."""
    text = FILE.replace("kairos", "oracle").replace("20000", "100000000")

    with pytest.raises(InvalidInput, match="line 7: requests: the oracle can look at up to 10,000,000"):
        load(tmp_path, text)


def test_an_oracle_without_a_number_of_requests(tmp_path: Path) -> None:
    """A time does not say how many requests there are at once."""
    text = FILE.replace("kairos", "oracle").replace("requests: 20000\n", "")

    with pytest.raises(InvalidInput, match="line 1: the file: the oracle needs all requests at once"):
        load(tmp_path, text)


def test_sizes_outside_a_table(tmp_path: Path) -> None:
    """A table that lacks sizes which come is refused: nothing is known there."""
    table = "[{name: a, price: 1, max_count: 9, profile: {rm2: {1: 5, 500: 90}}}]"
    text = FILE.replace("catalogue: paper", f"catalogue: {table}").replace(
        "[{type: g4dn.xlarge, count: 2}, {type: r5n.large, count: 9}]", "[{type: a, count: 1}]"
    )

    with pytest.raises(InvalidInput, match=r"line 5: .*holds 1 to 500 items, but requests have 10 to 1000"):
        load(tmp_path, text)


def test_what_is_odd_is_noted() -> None:
    """A pool above the budget, without a base instance, or with a raised table, is simulated, and noted."""
    falling = {"name": "odd", "price": 1.0, "max_count": 9, "profile": {"m": {1: 5.0, 500: 4.0, 1000: 300.0}}}
    cluster = pool(
        instances=[{"type": "odd", "count": 3}], catalogue=[falling], budget=2.0, sizes="gaussian:600,50"
    )

    assert [note.split(";")[0] for note in cluster.notes] == [
        "the profile of m on odd falls",
        "no instance of the pool meets slo_ms 150 of s at its largest size, 881 items: "
        "the fastest needs 229.8 ms",
        "the pool costs 3 $/h, more than the budget of 2",
    ]


def test_a_penalty_that_does_not_keep_requests_from_being_late_is_noted() -> None:
    """A type more than `penalty` times as slow costs less when late than the fast one in time (eq. 8)."""
    catalogue = [
        {"name": name, "price": 1, "max_count": 9, "profile": {"m": {"alpha_ms": alpha, "beta_ms": 0}}}
        for name, alpha in (("fast", 0.1), ("slow", 2.5))
    ]
    tempted, kept, as_text = (
        pool(catalogue=catalogue, slo_ms=90.0, rate=1.0, options=options, requests=150)
        for options in ({}, {"penalty": 250.0}, {"penalty": "250"})
    )

    (note,) = tempted.notes
    assert note.startswith(
        "slow takes 25 times as long as fast for 851 items of s, more than the penalty of kairos, 10"
    )
    assert "after 40% of the SLO" in note
    assert note.endswith("options: {penalty: 250}")
    assert kept.notes == as_text.notes == ()
    assert tempted.rental is not None
    assert PoolTrial(tempted, tempted.rental.types).notes == (note,)
    (unnamed,) = PoolTrial(tempted.model_copy(update={"policy": None}), tempted.rental.types).notes
    assert unnamed == note.replace("options: {", "policy: kairos, options: {")  # else they do not count
    assert simulate(tempted).bad_rate > 0.1  # although the fast instance is nearly always idle
    assert simulate(kept).bad_rate < 0.02  # the first request meets instances of which nothing is known


def test_the_penalty_is_enough_for_the_catalogue_of_the_paper() -> None:
    """Its slowest type is at most 7.2 times as slow as the fastest, whichever of them meet the SLO."""
    types = ("g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge")
    largest_ms = {"ncf": (3, 13), "rm2": (262, 885), "wnd": (10, 67), "mtwnd": (14, 84), "dien": (19, 134)}
    for model, (fastest, slowest) in largest_ms.items():
        for slo in (fastest, slowest):
            session = {"name": model, "model": model, "slo_ms": slo, "sizes": "paper", "rate": 1}
            rented = [{"type": name, "count": 1} for name in types]
            file = {"policy": "kairos", "instances": rented, "sessions": [session]}

            scenario = Scenario.model_validate(file)
            smaller = Scenario.model_validate({**file, "options": {"penalty": 3}})

            assert scenario.notes == ()
            assert [f"items of {model}, more than the penalty" in note for note in smaller.notes] == [True]


def test_copies_forget_what_was_computed() -> None:
    """A copy with other fields does not remember what was computed from the old ones."""
    cluster = pool(rate=10.0)
    assert cluster.rental is not None
    assert cluster.instances is not None
    assert (cluster.rental.pool, cluster.interval.last > 0) == ({"fast": 1, "slow": 2}, True)

    faster, other = cluster.scaled(2.0), cluster.model_copy(update={"instances": cluster.instances[:1]})

    assert faster.interval.last == pytest.approx(cluster.interval.last / 2)
    assert faster.total_rate == 20.0
    assert other.rental is not None
    assert other.rental.pool == {"fast": 1}
    assert other.cluster_spec().kinds == [0]


def test_batches_on_rented_instances() -> None:
    """A batching policy takes the profile of a model from the catalogue: a batch of b requests is b items."""
    table = {"name": "table", "price": 1.0, "max_count": 9, "profile": {"m": {1: 10.0, 3: 20.0}}}
    line = {"name": "line", "price": 1.0, "max_count": 9, "profile": {"m": {"alpha_ms": 2, "beta_ms": 5}}}
    session = {"name": "s", "model": "m", "slo_ms": 50.0, "rate": 10}

    both = Scenario.model_validate(
        {
            "policy": "eager",
            "catalogue": [table, line],
            "instances": [{"type": "line", "count": 2}, {"type": "table", "count": 1}],
            "sessions": [session],
        }
    )

    spec = both.cluster_spec()
    assert both.hardware.kinds == ("table", "line")
    assert list(spec.kinds) == [0, 1, 1]
    assert spec.sessions[0].latency == pytest.approx(np.array([[0, 10, 15, 20], [0, 7, 9, 11]]) / 1e3)


def test_requests_with_sizes_on_accelerators() -> None:
    """Sessions may have profiles of their own; a request without a size is one item."""
    sized = {"name": "a", "alpha_ms": 0.1, "beta_ms": 10, "slo_ms": 90, "rate": 10, "sizes": "gaussian:300,1"}
    plain = {"name": "b", "profile_ms": [6, 7, 8], "slo_ms": 30, "rate": 5}

    made = Scenario.model_validate({"policy": "ribbon", "accelerators": 2, "sessions": [sized, plain]})

    one, other = made.cluster_spec().sessions
    assert one.latency.shape == (1, 307)
    assert one.latency[0, 300] == pytest.approx(0.040)
    assert other.latency.tolist() == [[0.0, 0.006]]
    with pytest.raises(ValidationError, match="profile_ms holds 1 to 3 items, but requests have 294 to 306"):
        Scenario.model_validate(
            {"policy": "ribbon", "accelerators": 2, "sessions": [plain | {"sizes": "gaussian:300,1"}]}
        )
