"""The client library for ``mode: grants``: the scheduler says when and where inputs are sent."""

from tuner.dispatch.client.aio import AsyncGrantClient
from tuner.dispatch.client.blocking import GrantClient
from tuner.dispatch.client.granted import Granted
from tuner.dispatch.request import Refused, Status, TraceContext

__all__ = ["AsyncGrantClient", "GrantClient", "Granted", "Refused", "Status", "TraceContext"]
