"""Measures load, latency, processors and batching of a backend, and sends load of its own.

Importing it loads neither grpc nor a GPU driver: the load generator's worker is another process.
"""

from tuner.profiler.clock import WallClock
from tuner.profiler.host import LocalHost, RemoteHost
from tuner.profiler.load.generator import LoadGenerator
from tuner.profiler.load.log import LoadTotals
from tuner.profiler.profile_tracker import ProfileTracker
from tuner.profiler.profiler import Profiler
from tuner.profiler.source import Clients, ClientSample, Clock, Host, HostReading
from tuner.profiler.window import Reading, assemble
from tuner.workload.arrivals import Arrival
from tuner.workload.notation import parse_arrival

__all__ = [
    "Arrival",
    "ClientSample",
    "Clients",
    "Clock",
    "Host",
    "HostReading",
    "LoadGenerator",
    "LoadTotals",
    "LocalHost",
    "ProfileTracker",
    "Profiler",
    "Reading",
    "RemoteHost",
    "WallClock",
    "assemble",
    "parse_arrival",
]
