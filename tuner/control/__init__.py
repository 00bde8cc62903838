"""The control loop: decides without I/O, guarded; a driver carries it out on a live or simulated server."""

from tuner.control.decision import Apply, Decision, Hold, Rollback
from tuner.control.driver import Driver, Journal, WindowRecord
from tuner.control.guard import WATCHED, ErrorBudget, Guard, GuardLimits, GuardState
from tuner.control.ledger import Ledger
from tuner.control.loop import ControlLoop
from tuner.control.state import RunState

__all__ = [
    "WATCHED",
    "Apply",
    "ControlLoop",
    "Decision",
    "Driver",
    "ErrorBudget",
    "Guard",
    "GuardLimits",
    "GuardState",
    "Hold",
    "Journal",
    "Ledger",
    "Rollback",
    "RunState",
    "WindowRecord",
]
