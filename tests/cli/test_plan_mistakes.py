"""Mistakes in the files of ``tuner plan``: each is one error, which names the field."""

from __future__ import annotations

import pytest

from tests.cli.planning import CATALOGUE, CLUSTER, PARTITION, PREFIXED, QUERY, SESSION, Plan


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        ("instances", f"{CATALOGUE}{SESSION}", "budget: is missing"),
        (
            "instances",
            f"budget: 0.2\n{CATALOGUE}{SESSION.replace('40', '15')}",
            "0.2 $/h buys no instance that meets slo_ms",
        ),
        (
            "instances",
            f"budget: 2\n{CATALOGUE}{SESSION.replace('100,20', '300,20')}",
            "profile of m on cpu: holds 1 to 256",
        ),
        ("instances", f"budget: 2\n{CATALOGUE}{SESSION.replace('40', '3')}", "gpu needs"),
        (
            "instances",
            f"budget: 2\n{CATALOGUE.replace('price: ', 'price: -')}{SESSION}",
            "catalogue[0].price: must be greater than 0",
        ),
        (
            "instances",
            f"budget: 2\ncatalogue: none.yaml\n{SESSION}",
            "instances.yaml line 2: catalogue: there is no file none.yaml",
        ),
        ("instances", f"budget: 2\n{CATALOGUE}{SESSION.replace('gaussian', 'gauss')}", "gauss:100,20"),
        (
            "instances",
            f"budget: 2\n{SESSION}{CATALOGUE}".replace("0.01, beta_ms: 5", "0, beta_ms: 1.0e-308"),
            "alpha_ms and beta_ms must be at least 1e-06 ms together",
        ),
        (
            "query",
            QUERY.replace("profile_ms: {1: 5, 8: 20}", "alpha_ms: 0, beta_ms: 1.0e-308"),
            "alpha_ms and beta_ms must be at least 1e-06 ms together",
        ),
        ("instances", f"budgets: 2\n{CATALOGUE}{SESSION}", "did you mean 'budget'?"),
        ("instances", f"budget: 2\n{CATALOGUE}{SESSION.replace('model: m', 'model: n')}", "use m"),
        ("cluster", CLUSTER.replace("rate: 64", "rate: -1"), "line 3: sessions[0].rate"),
        ("cluster", CLUSTER.replace("name: b", "name: a"), "is the name of 2 of them"),
        (
            "cluster",
            CLUSTER.replace("profile_ms: {4: 50, 8: 90, 16: 125}", "alpha_ms: 1"),
            "needs one profile",
        ),
        (
            "cluster",
            CLUSTER.replace("8: 90,", "8: 9,"),
            "sessions[1].profile_ms: must not fall, but a batch of 8 takes 9 ms after 50 ms",
        ),
        (
            "cluster",
            CLUSTER.replace("{4: 50, 8: 90", "{4: 1.0e-308, 8: 90"),
            "sessions[1].profile_ms: must be at least 1e-06 ms, but a batch of 4 takes 1e-308 ms",
        ),
        (
            "cluster",
            CLUSTER.replace("profile_ms: {4: 50, 8: 90, 16: 125}", "alpha_ms: 0, beta_ms: 1.0e-308"),
            "alpha_ms and beta_ms must be at least 1e-06 ms together",
        ),
        (
            "query",
            QUERY.replace("rate: 100", "rate: 1.0e-308"),
            "rate: must be greater than or equal to 0.000001",
        ),
        (
            "query",
            QUERY.replace("profile_ms: {1: 5, 8: 20}", "alpha_ms: 1.0e+308, beta_ms: 1"),
            "stages[1].alpha_ms: must be less than or equal to 1000000000",
        ),
        ("instances", f"budget: 1.0e+308\n{CATALOGUE}{SESSION}", "budget: must be less than or equal to"),
        ("query", QUERY.replace("slo_ms: ", "slo_ms: 9999999999"), "slo_ms: must be less than or equal to"),
        (
            "query",
            QUERY.replace("{1: 5, 8: 20}", "{1: 5, 8: -20}"),
            "stages[1].profile_ms: must be above 0 ms, but a batch of 8 takes -20 ms",
        ),
        ("cluster", "sessions: []\n", "needs at least one"),
        ("cluster", f"previous: none.json\n{CLUSTER}", "there is no file none.json"),
        (
            "cluster",
            CLUSTER.replace("name: b,", "name: b, prefix: body,"),
            "has the prefix body, which is not in prefixes",
        ),
        (
            "cluster",
            PREFIXED.replace("name: other", "name: body"),
            "is the name of a prefix and of a session",
        ),
        ("cluster", f"previous: cluster.yaml\n{CLUSTER}", "is no plan"),
        ("partition", PARTITION.replace("600", "6000"), "a needs 6000 MiB, more than memory_mib"),
        (
            "partition",
            PARTITION.replace("600", "900").replace("400", "950"),
            "the models need 2,050 MiB",
        ),
        (
            "cluster",
            CLUSTER.replace("rate: 64", "rate: 1e9"),
            "need about 6,250,000 accelerators, a alone 6,250,000",
        ),
        ("partition", f"max_rate: 200\n{PARTITION}", "a has 300 requests/s, more than max_rate"),
        (
            "partition",
            f"max_disruption: 1\nprevious: {{a: 0, b: 0, c: 0}}\n{PARTITION}",
            "the least disruption is 2",
        ),
        (
            "partition",
            f"previous: {{a: 7}}\n{PARTITION}",
            "a was in sub-cluster 7, but there are 0 to 1 now; leave it out",
        ),
        ("partition", PARTITION.replace("name: b", "name: a"), "is the name of 2 of them"),
        (
            "query",
            QUERY.replace("{1: 5, 8: 20}", "{1: 5, 8: 20}, next: [{stage: detect}]"),
            "the query is cyclic",
        ),
        (
            "query",
            QUERY.replace("stage: recognise", "stage: recognize"),
            "line 2: stages: stage 'detect' calls 'recognize', which is no stage",
        ),
        (
            "query",
            QUERY.replace("slo_ms: 400", "slo_ms: 12"),
            "no split meets 12 ms: detect -> recognise need 13 ms",
        ),
        (
            "query",
            QUERY.replace("gamma: 1.5", "gamma: 0"),
            "line 3: stages[0].next[0].gamma: must be greater than 0",
        ),
        (
            "query",
            QUERY.replace("profile_ms: {1: 5, 8: 20}", "alpha_ms: 3"),
            "give profile_ms, or alpha_ms and beta_ms",
        ),
    ],
)
def test_mistakes_are_named(plan: Plan, kind: str, text: str, names: str) -> None:
    """Exit code 2, one error, and nothing is printed or written."""
    code, out, err, stored = plan(kind, text)

    assert (code, out, stored) == (2, "", None)
    assert names in err
