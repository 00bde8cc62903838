"""The dispatcher as a server that is tuned: ``dispatch://HOST:PORT?token_file=/path``."""

from tuner.adapters.dispatch.backend import DispatchBackend, connect

__all__ = ["DispatchBackend", "connect"]
