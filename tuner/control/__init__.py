"""The control loop: decides without I/O, guarded; a driver carries it out on a live or simulated server."""

from tuner.control.decide.decision import Apply, Decision, Hold, Rollback
from tuner.control.decide.limits import WATCHED, GuardLimits
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.driver import Driver
from tuner.control.drive.journal import StateFile, WindowRecord
from tuner.control.drive.oversight import Oversight
from tuner.control.drive.state import RunState
from tuner.control.drive.watched import Watched

__all__ = [
    "WATCHED",
    "Apply",
    "ControlLoop",
    "Decision",
    "Driver",
    "GuardLimits",
    "Hold",
    "Oversight",
    "Rollback",
    "RunState",
    "StateFile",
    "Watched",
    "WindowRecord",
]
