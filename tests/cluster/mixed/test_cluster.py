"""The file of a mixed cluster: the pool it means, and its mistakes with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.mixed.builders import mixed
from tuner.cluster.mixed import DrivenCluster, MixedCluster
from tuner.errors import InvalidInput
from tuner.yaml_file import load_yaml

ROOT = Path(__file__).parents[3]
FILE = """policy: kairos
instances: [{type: g4dn.xlarge, count: 2}, {type: r5n.large, count: 9}]
catalogue: paper
sessions:
  - {name: rm2, model: rm2, qos_ms: 350, quantile: 0.99, rate: 60, arrival: poisson, sizes: paper}
budget: 2.5
queries: 20000
seed: 1
"""


def load(tmp_path, text, kind=DrivenCluster):
    path = tmp_path / "mixed.yaml"
    path.write_text(text)
    return load_yaml(path, kind)


def test_the_file_of_the_documentation(tmp_path):
    """Every field of the form is read."""
    cluster = load(tmp_path, FILE)

    assert cluster.pool == {"g4dn.xlarge": 2, "r5n.large": 9}
    assert cluster.cost == pytest.approx(2.393)
    assert cluster.notes == ()
    assert cluster.cluster_spec().kinds == [0, 0] + [1] * 9
    assert cluster.cluster_spec().sessions[0].latency.shape == (2, 1001)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kairos", "karios", "line 1: policy: must be 'kairos', 'ribbon'"),
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
        ("instances:", "instance:", "line 1: the file: has no `instances`"),
        ("catalogue: paper", "catalogue: other.yaml", "line 3: catalogue: there is no file"),
        ("model: rm2", "model: rm3", "line 2: instances[0].type: g4dn.xlarge has no profile of rm3"),
        ("qos_ms: 350", "qos_ms: 0", "line 5: sessions[0].qos_ms: must be greater than 0"),
        ("quantile: 0.99", "quantile: 99", "line 5: sessions[0].quantile: must be less than 1"),
        ("rate: 60, ", "", "line 5: sessions[0]: has no rate; give queries/s"),
        (
            "arrival: poisson",
            "arrival: poison",
            "line 5: sessions[0].arrival: must be 'poisson' or 'integer_poisson'",
        ),
        ("sizes: paper", "sizes: gauss", "line 5: sessions[0].sizes: 'gauss' is not known"),
        ("queries: 20000", "queries: 0", "line 7: queries: must be greater than or equal to 1"),
        (
            "seed: 1",
            "options: {gard: 1}",
            "line 8: options.gard: kairos has no such option; use one of guard",
        ),
        ("seed: 1", "options: {guard: 2}", "line 8: options: guard: 2.0 is out of range"),
        ("seed: 1", "sed: 1", "line 8: sed: there is no such field; did you mean 'seed'?"),
    ],
)
def test_mistakes_are_told_with_line_and_field(tmp_path, old, new, said):
    """A mistake is told with its file, line and field, and what to write instead."""
    assert FILE.count(old) == 1

    with pytest.raises(InvalidInput) as error:
        load(tmp_path, FILE.replace(old, new))

    assert said in str(error.value)


def test_the_example_can_be_loaded():
    """The file that ships with the documentation is complete."""
    assert load_yaml(ROOT / "docs" / "examples" / "mixed.yaml", DrivenCluster).cost == pytest.approx(2.393)


def test_a_throughput_needs_no_rate(tmp_path):
    """Where rates are searched, they need not be given."""
    cluster = load(tmp_path, FILE.replace("rate: 60, ", ""), MixedCluster)

    assert cluster.rates.tolist() == [1.0]


def test_an_oracle_of_too_many_queries(tmp_path):
    """The oracle needs all queries at once; more than memory holds are refused."""
    text = FILE.replace("kairos", "oracle").replace("20000", "100000000")

    with pytest.raises(InvalidInput, match="line 7: queries: the oracle can look at up to 10,000,000"):
        load(tmp_path, text)


def test_sizes_outside_a_table(tmp_path):
    """A table that lacks sizes which come is refused: nothing is known there."""
    table = "[{name: a, price: 1, max_count: 9, profile: {rm2: {1: 5, 500: 90}}}]"
    text = FILE.replace("catalogue: paper", f"catalogue: {table}").replace(
        "[{type: g4dn.xlarge, count: 2}, {type: r5n.large, count: 9}]", "[{type: a, count: 1}]"
    )

    with pytest.raises(InvalidInput, match=r"line 5: .*holds 1 to 500 items, but queries have 10 to 1000"):
        load(tmp_path, text)


def test_what_is_odd_is_noted():
    """A pool above the budget, without a base instance, or with a raised table, is simulated, and noted."""
    falling = {"name": "odd", "price": 1.0, "max_count": 9, "profile": {"m": {1: 5.0, 500: 4.0, 1000: 300.0}}}
    cluster = mixed(
        instances=[{"type": "odd", "count": 3}], catalogue=[falling], budget=2.0, sizes="gaussian:600,50"
    )

    assert [note.split(";")[0] for note in cluster.notes] == [
        "the profile of m on odd falls",
        "no instance of the pool keeps qos_ms 150 of s at its largest size, 881 items: "
        "the fastest needs 229.8 ms",
        "the pool costs 3 $/h, more than the budget of 2",
    ]


def test_changed_copies_work_out_everything_anew():
    """A copy with other fields does not remember what was worked out before."""
    cluster = mixed(rate=10.0)
    assert (cluster.pool, cluster.seconds > 0) == ({"fast": 1, "slow": 2}, True)

    faster, other = cluster.scaled(2.0), cluster.changed(instances=cluster.instances[:1])

    assert faster.seconds == pytest.approx(cluster.seconds / 2)
    assert faster.rates.tolist() == [20.0]
    assert other.pool == {"fast": 1}
    assert other.cluster_spec().kinds == [0]
