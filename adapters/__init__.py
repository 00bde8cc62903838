"""Serving backends behind one contract: Triton and TensorFlow Serving here, others by entry point.

``docs/adapters.md`` says how to write one of your own; all that it needs is listed here.
"""

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint, Loadable, Wire
from tuner.adapters.connection.request import FilledInput, Input
from tuner.adapters.metrics.gpu import GpuUse
from tuner.adapters.metrics.histogram import Histogram
from tuner.adapters.metrics.totals import MonotonicTotals
from tuner.adapters.registry import connect, schemes
from tuner.knobs import Grids

__all__ = [
    "ApplyReport",
    "Backend",
    "Counters",
    "Description",
    "Endpoint",
    "FilledInput",
    "GpuUse",
    "Grids",
    "Histogram",
    "Input",
    "Loadable",
    "MonotonicTotals",
    "Wire",
    "connect",
    "schemes",
]
