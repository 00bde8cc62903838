"""A real Triton server on this machine, for the demo, for tests and for trying things out."""

from tuner.adapters.triton.embedded.server import EmbeddedTriton, TritonOptions, TritonPorts

__all__ = ["EmbeddedTriton", "TritonOptions", "TritonPorts"]
