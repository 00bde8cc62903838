"""What users write about a cluster: its sessions, its accelerators and network, and the policy."""

from tuner.cluster.scenario.network import Network
from tuner.cluster.scenario.rental import Rental
from tuner.cluster.scenario.scenario import Scenario
from tuner.cluster.scenario.session import Session

__all__ = ["Network", "Rental", "Scenario", "Session"]
