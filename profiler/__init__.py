"""Measures load, latency, processors and batching of a backend, and sends load of its own.

Importing it loads neither grpc nor a GPU driver: the load generator's worker is another process.
"""

from tuner.profiler.load.generator import LoadGenerator
from tuner.profiler.profiler import Profiler

__all__ = ["LoadGenerator", "Profiler"]
