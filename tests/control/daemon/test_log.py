"""The daemon's log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import FileServer
from tests.waiting import LONGEST
from tuner.agents.trainer import Trainer
from tuner.control.daemon.log import JsonLines, begin_log
from tuner.control.daemon.worker import Worker
from tuner.control.sentence import about, log_sentence
from tuner.control.store import order_book
from tuner.control.store.store import Store
from tuner.errors import StorageError


def json_log() -> tuple[logging.Logger, io.StringIO]:
    """Return a log in JSON, and where it is written to."""
    log, stream = logging.Logger("x"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    return log, stream


def test_a_message_is_a_json_object_on_one_line() -> None:
    """With time, level and target; line breaks and errors stay within it."""
    log, stream = json_log()

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


def test_json_has_the_limits_of_text() -> None:
    """A message is not endless, and the words of a server in a traceback command no terminal."""
    log, stream = json_log()

    log.info("y" * 100_000)
    try:
        raise ValueError("it said \x9b1mred")
    except ValueError:
        log.exception("unexpected")

    long, unexpected = map(json.loads, stream.getvalue().splitlines())
    assert long["message"] == "y" * 4000
    assert unexpected["exception"].endswith("ValueError: it said 1mred")


@pytest.fixture
def verbose() -> Iterator[io.StringIO]:
    """What a daemon writes that logs JSON, and also windows after which nothing was changed."""
    stream, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger("tuner.control")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    try:
        begin_log(stream, as_json=True)
        ours.setLevel(logging.DEBUG)
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_message_of_others_has_the_target_that_it_is_about(as_json: bool) -> None:
    """An adapter knows nothing of targets, and may warn in a thread of its own."""
    stream, root, adapter = io.StringIO(), logging.getLogger(), logging.getLogger("tuner.adapters.x")
    handlers, level = root.handlers[:], root.level

    def warn(_: int) -> None:
        adapter.warning("h:8001: no answer")

    trainer = Trainer(warn, "training", background=True)
    try:
        begin_log(stream, as_json=as_json)
        with about("a"):
            adapter.warning("here")
            trainer.request()
            assert trainer.wait(LONGEST)
            log_sentence("a", "waits")
            log_sentence("", "of the daemon")
        adapter.warning("of nobody")
    finally:
        trainer.close()
        root.handlers[:], root.level = handlers, level

    lines = stream.getvalue().splitlines()
    if as_json:
        assert [(one.get("target"), one["message"]) for one in map(json.loads, lines)] == [
            ("a", "here"),
            ("a", "h:8001: no answer"),
            ("a", "waits"),
            (None, "of the daemon"),
            (None, "of nobody"),
        ]
    else:
        assert [line.split(" ", 2)[2] for line in lines] == [
            "a: here",
            "a: h:8001: no answer",
            "a: waits",
            "daemon: of the daemon",
            "of nobody",
        ]


def test_each_message_of_a_worker_has_its_target(
    bed: Bed, verbose: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a field, and not within the message: also errors, and what is logged at the level of debugging.

    So has what an adapter says, which knows nothing of targets.
    """
    counters = FileServer.counters

    def warn(server: FileServer) -> Any:
        logging.getLogger("tuner.adapters.x").warning("a word of an adapter")
        return counters(server)

    def first_fails(real: Callable[..., Any], error: Exception) -> Callable[..., Any]:
        errors = [error]

        def call(*arguments: Any, **options: Any) -> Any:
            if errors:
                raise errors.pop()
            return real(*arguments, **options)

        return call

    bed.write(("a", "apply", ""))
    bed.run(windows=1)  # which makes the store
    bed.write(("a", "recommend", "objective: cpu"))
    monkeypatch.setattr(FileServer, "counters", warn)
    monkeypatch.setattr(Worker, "_driver", first_fails(Worker._driver, RuntimeError("a bug")))
    monkeypatch.setattr(Store, "note", first_fails(Store.note, StorageError("the disk is full")))
    failing = first_fails(order_book.orders_of, StorageError("the disk is broken"))
    monkeypatch.setattr(order_book, "orders_of", failing)
    with closing(Store(bed.folder / "s.db")) as store:
        Worker(bed.daemon().config.targets[0], store, fast=True, windows=12).run()

    lines = [json.loads(line) for line in verbose.getvalue().splitlines()]
    assert {line.get("target") for line in lines} == {"a"}
    messages = [line["message"] for line in lines]
    assert not [message for message in messages if message.startswith("a: ")]
    assert {"unexpected", "the disk is full", "the disk is broken", "a word of an adapter"} <= set(messages)
    for begun in ("has another objective now", "hold, "):
        assert any(message.startswith(begun) for message in messages)
    advised = [line for line in lines if ": recommended; " in line["message"]]
    assert {line["level"] for line in advised} == {"info", "debug"}
    assert all(line["message"].startswith("would apply ") for line in advised)
