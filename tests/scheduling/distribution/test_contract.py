"""Every distribution policy is held to the contract of all policies."""

from __future__ import annotations

from typing import Any, ClassVar

from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES, build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec
from tuner.testing.policy import PolicyContract


class OfCatalogue(PolicyContract):
    """A policy by its name, with options."""

    name = ""
    options: ClassVar[dict[str, Any]] = {}
    distributes = True

    def make(self, spec: ClusterSpec) -> Any:
        return build_policy(self.name, spec, options_of(self.name)(**self.options))


class TestKairos(OfCatalogue):
    name = "kairos"
    options: ClassVar[dict[str, Any]] = {"learn": False}
    reorders = True


class TestKairosLearning(OfCatalogue):
    name = "kairos"
    options: ClassVar[dict[str, Any]] = {"prediction_noise": 0.1, "spread": 2.0, "refuse": True}
    reorders = True
    believes = False


class TestRibbon(OfCatalogue):
    name = "ribbon"


class TestDrs(OfCatalogue):
    name = "drs"
    options: ClassVar[dict[str, Any]] = {"threshold": 3}


class TestClkwrk(OfCatalogue):
    name = "clkwrk"


class TestClkwrkRefusing(OfCatalogue):
    name = "clkwrk"
    options: ClassVar[dict[str, Any]] = {"refuse": True}
    promises = True


class TestClkwrkLearning(OfCatalogue):
    name = "clkwrk"
    options: ClassVar[dict[str, Any]] = {"learn": True, "refuse": True}
    believes = False


class TestOracle(OfCatalogue):
    name = "oracle"
    reorders = True
    both_ends = True


def test_every_policy_is_here() -> None:
    """No policy of the catalogue is left out."""
    assert {kind.name for kind in OfCatalogue.__subclasses__()} == set(DISTRIBUTION_POLICIES)
