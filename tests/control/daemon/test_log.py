"""The daemon's log."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tuner.control.daemon.log import JsonLines, begin_log


def test_a_message_is_a_json_object_on_one_line() -> None:
    """With time, level and target; line breaks and errors stay within it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.Logger("x")
    log.addHandler(handler)

    log.info("%s: %s", "a", "one\ntwo", extra={"target": "a", "sentence": "one\ntwo"})
    log.warning("plain %d", 3)
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("unexpected")

    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["target"], first["message"]) == ("info", "a", "one\ntwo")
    assert first["time"].endswith("+00:00")
    assert (second["message"], "target" in second) == ("plain 3", False)
    assert "ValueError: a bug" in third["exception"]


@pytest.mark.parametrize("as_json", [False, True])
def test_no_message_commands_the_terminal(as_json: bool) -> None:
    """Servers' words may stand in it."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        begin_log(stream, as_json=as_json)
        logging.getLogger("tuner").info("it said \x1b[31m\x9b1mred")
    finally:
        root.handlers[:], root.level = handlers, level

    assert "it said [31m1mred" in stream.getvalue()


def test_no_message_forges_another() -> None:
    """A name with a line break begins no line, neither of a message nor of a traceback; none is endless."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        begin_log(stream, as_json=False)
        logging.getLogger("tuner").info("a: model 'x\n2026-01-01 INFO b: stopped' %s", "y" * 100_000)
        try:
            raise ValueError("x\n2026-01-01 INFO b: stopped")
        except ValueError:
            logging.getLogger("tuner").exception("unexpected")
    finally:
        root.handlers[:], root.level = handlers, level

    first, *others = stream.getvalue().splitlines()
    assert "a: model 'x 2026-01-01 INFO b: stopped'" in first
    assert len(first) <= 4000
    assert [line for line in others if not line.startswith("  ")] == [others[0]]
