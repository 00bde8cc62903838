"""Measures the windows of a target, and reports when they begin and whether they could be measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.control.drive.watched import Measurer, longest
from tuner.errors import AdapterError

if TYPE_CHECKING:
    from tuner.measurement import Measurement

__all__ = ["ReportingMeasurer"]


class ReportingMeasurer:
    """A measurer that reports when a window begins, and when it ends whether it could be measured.

    Args:
        profiler: Measures the windows.
        begin: Receives how long the window may take, s.
        report: Receives None, or why a window could not be measured.
    """

    def __init__(
        self,
        profiler: Measurer,
        begin: Callable[[float], None],
        report: Callable[[AdapterError | None], None],
    ) -> None:
        self._profiler = profiler
        self._begin = begin
        self._report = report

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        """Measure a window.

        Raises:
            AdapterError: The server, or the source of its metrics, did not answer.
        """
        self._begin(longest(seconds, settle))
        try:
            measurement = self._profiler.measure(seconds, settle=settle, enough=enough)
        except AdapterError as error:
            self._report(error)
            raise
        self._report(None)
        return measurement
