"""Every agent of the catalogue is held to the contract."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.agents.contract import CatalogueContract


class TestRRL(CatalogueContract):
    name = "rrl"
    windows = 30


class TestQLearning(CatalogueContract):
    name = "q_learning"
    windows = 80


class TestRandom(CatalogueContract):
    name = "random"


class TestHillClimb(CatalogueContract):
    name = "hill_climb"
    windows = 40


class TestRRLPaper(CatalogueContract):
    name = "rrl_paper"
    parameters: ClassVar = {"estimator": {"hidden": [16, 8], "steps": 5}}


class TestRRLCode(CatalogueContract):
    """One table for all loads, and estimates that no measurement anchors: it learns, but less exactly."""

    name = "rrl_code"
    parameters: ClassVar = {"estimator": {"hidden": [16, 8], "steps": 5}}
    per_level = False
    near = 3.0


class TestCapes(CatalogueContract):
    """Small, with few training steps: what it learns is tested in test_capes.py."""

    name = "capes"
    parameters: ClassVar = {"hidden": [32, 32], "training_steps": 2}
    windows = 120


class TestCapesLevel(CatalogueContract):
    name = "capes_level"
    parameters: ClassVar = {"hidden": [32, 32]}
    windows = 120


class TestDeepRM(CatalogueContract):
    name = "deeprm"
    windows = 120


class TestTpe(CatalogueContract):
    name = "tpe"
    windows = 40
    seeds = 1


class TestGp(CatalogueContract):
    name = "gp"
    parameters: ClassVar = {"budget": 14, "startup": 8}
    windows = 18
    near = 1.7
    seeds = 1


class TestSafeGp(CatalogueContract):
    """Few windows: each fits a process. It goes on exploring, and so is not always near."""

    name = "safe_gp"
    windows = 12
    near = 2.0
    seeds = 3

    @pytest.fixture(autouse=True)
    def botorch(self) -> None:
        pytest.importorskip("botorch", reason="needs the extra research")


class TestClipperAimd(CatalogueContract):
    """Where the smallest batch breaks the SLO it stays: it knows no better in the contract's valley."""

    name = "clipper_aimd"
    near = 3.4


class TestOracle(CatalogueContract):
    name = "oracle"
    windows = 1
    near = 1.0
    learns = False
