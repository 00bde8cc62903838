"""Every agent of the catalogue is held to the contract."""

from __future__ import annotations

from typing import ClassVar

from tests.agents.contract import CatalogueContract


class TestRRL(CatalogueContract):
    name = "rrl"
    parameters: ClassVar = {"estimator": {"hidden": (16, 8), "steps": 5}}
    windows = 30


class TestQLearning(CatalogueContract):
    name = "q_learning"
    windows = 80


class TestRandom(CatalogueContract):
    name = "random"


class TestHillClimb(CatalogueContract):
    name = "hill_climb"
    windows = 40


class TestClipperAimd(CatalogueContract):
    """Where the smallest batch breaks the SLO it stays: it knows no better in the contract's valley."""

    name = "clipper_aimd"
    near = 3.4


class TestOracle(CatalogueContract):
    name = "oracle"
    windows = 1
    near = 1.0
    learns = False
