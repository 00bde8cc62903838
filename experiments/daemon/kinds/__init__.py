"""The kinds of faults that are injected into a daemon, its server and the network between them.

Each kind is a function that injects a fault into the test bed, waits until it is over, and returns a few
words that say which form it had. The random generator chooses the form and the times.
"""

from tuner.experiments.daemon.kinds import machine, operator, process, server, store, web
from tuner.experiments.daemon.kinds.kind import BrokenPromise, Kind

__all__ = ["KINDS", "BrokenPromise", "Kind"]

KINDS = (*server.KINDS, *machine.KINDS, *store.KINDS, *process.KINDS, *operator.KINDS, *web.KINDS)
