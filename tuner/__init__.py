"""servetune keeps model servers inside their latency objective at the least cost.

The words every part shares are here: knobs, measurements, profiles, objectives and errors.
Heavy parts (torch, grpc, numba) load only when a module that needs them is imported.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
