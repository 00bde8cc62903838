"""Serving backends behind one contract: Triton here, others by entry point."""

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.registry import connect, schemes

__all__ = ["ApplyReport", "Backend", "Counters", "Description", "connect", "schemes"]
