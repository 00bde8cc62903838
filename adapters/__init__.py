"""Serving backends behind one contract: Triton and TensorFlow Serving here, others by entry point."""

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint, Loadable
from tuner.adapters.registry import connect, schemes

__all__ = ["ApplyReport", "Backend", "Counters", "Description", "Endpoint", "Loadable", "connect", "schemes"]
