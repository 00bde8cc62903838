"""The papers' models: the tables are those of the papers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tuner.experiments.zoo import A100, GTX_1080TI, TABLE_4, Model, model, strong, weak

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("zoo", "file"),
    [(GTX_1080TI, "symphony_table5_gtx1080ti.csv"), (A100, "symphony_table6_a100.csv")],
    ids=["1080ti", "a100"],
)
def test_tables_5_and_6(zoo: tuple[Model, ...], file: str) -> None:
    """Every model, latency and SLO of the table, in its order."""
    if not (DATA / file).exists():
        pytest.skip("the table is not beside the checkout")
    with (DATA / file).open() as table:
        expected = [
            (r["model"], float(r["alpha_ms"]), float(r["beta_ms"]), int(r["slo_ms"]))
            for r in csv.DictReader(table)
        ]

    assert [(one.name, one.alpha_ms, one.beta_ms, one.slo_ms) for one in zoo] == expected


def test_sizes_of_the_zoos() -> None:
    """35 and 37 models, each name once."""
    assert len({one.name for one in GTX_1080TI}) == len(GTX_1080TI) == 35
    assert len({one.name for one in A100}) == len(A100) == 37


@pytest.mark.parametrize(
    ("name", "slo"), [("MobileNet", 20), ("NASNetMobile", 33), ("BERT", 56), ("EfficientNetV2L", 378)]
)
def test_slo_rule(name: str, slo: int) -> None:
    """Twice the latency of a batch of four, rounded down, at least 20 ms."""
    assert model(name, GTX_1080TI).slo_ms == slo


def test_strong_and_weak_batching_divide_the_zoo() -> None:
    """Figure 6's halves: beta / alpha above and below 2."""
    assert len(strong(A100)) + len(weak(A100)) == len(A100)
    assert "BERT" in {one.name for one in weak(A100)}
    assert "DenseNet121" in {one.name for one in strong(A100)}


def test_table_4() -> None:
    """Two setups of eight accelerators."""
    assert [(setup.model.name, setup.slo_ms, setup.accelerators) for setup in TABLE_4] == [
        ("ResNet50", 25, 8), ("InceptionResNetV2", 70, 8),
    ]  # fmt: skip
    assert TABLE_4[1].model[1:] == (5.090, 18.368)
