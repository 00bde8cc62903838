"""The daemon's log: a line of text or a JSON object for each message."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

from tuner.control.sentence import target_of
from tuner.printable import one_line, printable

__all__ = ["JsonLines", "begin_log"]

LONGEST = 4000
"""Characters of a message."""


class Lines(logging.Formatter):
    """Formats a message as one line of text, with its traceback in indented lines below it if there is one.

    Words of servers and of files may stand in both. They cannot begin a line, so they cannot forge a message.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return the line of a message without the control characters that a terminal would obey."""
        if not hasattr(record, "target") and (target := target_of(record)):  # else the message begins so
            record.message = f"{target}: {record.message}"
        return one_line(super().formatMessage(record), LONGEST)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the lines of a traceback."""
        return printable(f"  {super().formatException(ei)}").replace("\n", "\n  ")


class JsonLines(logging.Formatter):
    """Formats a message as a JSON object on one line: ``time``, ``level``, ``message``; ``target`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a message; its text is escaped, so that it stays one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        if target := target_of(record):
            line["target"] = target
        message = str(getattr(record, "sentence", "") or record.getMessage())
        line["message"] = printable(message)[:LONGEST]
        if record.exc_info:
            line["exception"] = printable(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def begin_log(stream: TextIO, *, as_json: bool) -> None:
    """Send all messages from INFO on to a stream."""
    handler = logging.StreamHandler(stream)
    text = Lines("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(JsonLines() if as_json else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
