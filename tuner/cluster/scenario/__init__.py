"""What users write about a cluster: its sessions, its accelerators and network, and the policy."""

from tuner.cluster.scenario.hardware import Accelerators
from tuner.cluster.scenario.network import Network
from tuner.cluster.scenario.rental import Rental, Rented
from tuner.cluster.scenario.scenario import Scenario
from tuner.cluster.scenario.session import Profile, Session

__all__ = ["Accelerators", "Network", "Profile", "Rental", "Rented", "Scenario", "Session"]
