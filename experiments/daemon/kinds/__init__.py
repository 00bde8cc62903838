"""The kinds of faults that are injected into a daemon, its server and the network between them."""

from tuner.experiments.daemon.kinds.server import KINDS, Kind

__all__ = ["KINDS", "Kind"]
