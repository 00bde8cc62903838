"""Instance types and their profiles: interpolation, refusals, repairs."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from tuner.errors import InvalidInput
from tuner.planning.pools.catalogue import CatalogueFile, InstanceType, make_offers
from tuner.planning.pools.paper import MODELS, paper_catalogue
from tuner.workload.sizes import observed_sizes, parse_sizes

TEN_TO_FORTY = observed_sizes(np.array([10, 20, 40]))


def instance(profile: object, name: str = "cpu", model: str = "m") -> InstanceType:
    return InstanceType.model_validate(
        {"name": name, "price": 0.2, "max_count": 3, "profile": {model: profile}}
    )


def test_between_the_sizes_of_a_table_the_time_is_interpolated() -> None:
    """Half way between 10 and 40 items lies half way between their times."""
    offers = make_offers([instance({10: 2.0, 40: 8.0})], "m", TEN_TO_FORTY)

    assert offers.latency[0, [10, 25, 40]] == pytest.approx([0.002, 0.005, 0.008])
    assert offers.notes == ()


def test_a_line_knows_every_size() -> None:
    """alpha per item and beta per request, in milliseconds."""
    offers = make_offers([instance({"alpha_ms": 0.5, "beta_ms": 1})], "m", parse_sizes("gaussian:500,200"))

    assert offers.latency[0, [1, 1000]] == pytest.approx([0.0015, 0.501])


@pytest.mark.parametrize("table", [{20: 1.0, 40: 2.0}, {10: 1.0, 30: 2.0}])
def test_sizes_outside_a_table_are_refused(table: dict[int, float]) -> None:
    """The message names model, type, and both ranges."""
    with pytest.raises(InvalidInput, match=r"profile of m on cpu: holds .* but requests have 10 to 40"):
        make_offers([instance(table)], "m", TEN_TO_FORTY)


def test_a_table_that_falls_is_raised_and_told() -> None:
    """A larger request never takes less time than a smaller one did."""
    offers = make_offers([instance({10: 2.0, 20: 1.5, 30: 3.0, 40: 2.9})], "m", TEN_TO_FORTY)

    assert offers.latency[0, [10, 20, 30, 40]] == pytest.approx([0.002, 0.002, 0.003, 0.003])
    assert offers.notes == (
        "the profile of m on cpu falls; raised to the longest time of a smaller size at 20, 40 items",
    )


def test_times_that_are_not_positive_are_left_out_and_told() -> None:
    """As if the size had not been measured: the time is interpolated, or the plan refused at the edge."""
    offers = make_offers([instance({10: 2.0, 20: -1.5, 25: 0, 40: 8.0})], "m", TEN_TO_FORTY)

    assert offers.latency[0, [10, 25, 40]] == pytest.approx([0.002, 0.005, 0.008])
    assert offers.notes == (
        "the profile of m on cpu has times that are not positive; left out at 20, 25 items",
    )
    with pytest.raises(InvalidInput, match="holds 10 to 20 items with times above 0"):
        make_offers([instance({10: 2.0, 20: 3.0, 40: -8.0})], "m", TEN_TO_FORTY)


def test_types_without_the_model_are_left_out_and_told() -> None:
    """The others remain in the catalogue's order."""
    types = [instance({10: 1, 40: 1}), instance({10: 1, 40: 1}, "other", "x")]

    offers = make_offers(types, "m", TEN_TO_FORTY)

    assert offers.names == ("cpu",)
    assert offers.notes == ("other has no profile of m and is left out",)


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    """All models of the catalogue are listed."""
    with pytest.raises(InvalidInput, match="use dien, mtwnd, ncf, rm2, wnd"):
        make_offers(paper_catalogue(), "resnet", TEN_TO_FORTY)


@pytest.mark.parametrize(
    "profile",
    [
        {10: -1.0},
        {10: 0},
        {10: 0, 20: -3},
        {0: 1.0},
        {},
        {10: "fast"},
        {"ten": 1.0},
        {10: float("nan")},
        {"alpha_ms": -0.1, "beta_ms": 1},
        {"alpha_ms": 0, "beta_ms": 0},
        {"alpha_ms": 1e-308, "beta_ms": 0},
        {10: 1e-308},
        {"alpha_ms": 1},
        {"alpha_ms": 1, "beta_ms": 1, 10: 3},
    ],
)
def test_impossible_profiles_are_refused(profile: object) -> None:
    """No time is negative, and none is guessed."""
    with pytest.raises(ValidationError):
        instance(profile)


def test_two_types_of_one_name_are_refused() -> None:
    """Else a count would mean either."""
    with pytest.raises(ValidationError, match="'cpu' is the name of 2 of them"):
        CatalogueFile(catalogue=(instance({1: 1}), instance({1: 1})))


def test_the_papers_catalogue_is_complete() -> None:
    """Four types, each with the five models, the GPU first."""
    types = paper_catalogue()

    assert [(t.name, t.price, t.max_count) for t in types] == [
        ("g4dn.xlarge", 0.526, 5),
        ("c5n.2xlarge", 0.432, 6),
        ("r5n.large", 0.149, 17),
        ("t3.xlarge", 0.1664, 15),
    ]
    assert all(set(t.profile) == set(MODELS) for t in types)
