"""A daemon reads its file again, and cannot use it: one sentence says so, and everything goes on."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.control.daemon.daemon_bed import Bed, Running
from tests.waiting import eventually
from tuner.control.daemon import daemon as daemon_module
from tuner.experiments.daemon.bad_files import BAD_FILES


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_changes_nothing(bed: Bed, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is waited for, nothing is loaded that is too large, and a good file is followed afterwards."""
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        worker = keeper.workers["a"]
        BAD_FILES[name](bed.path)
        keeper.reload()
        eventually(lambda: any("not reloaded" in sentence for sentence in bed.said))
        assert keeper.workers == {"a": worker}
        assert worker.phase != "stopped"
        bed.path.unlink()
        bed.write(("b", "observe", ""))
        keeper.reload()
        eventually(lambda: "b" in keeper.workers)

    refusal = next(sentence for sentence in bed.said if "not reloaded" in sentence)
    assert str(bed.path) in refusal
    assert len(refusal) < 1500
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_bug_in_reading_is_survived(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it raises: the log has its traceback."""
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        monkeypatch.setattr(daemon_module, "load_yaml", lambda *_: 1 / 0)
        keeper.reload()
        eventually(lambda: caplog.records)
        assert list(keeper.workers) == ["a"]

    assert "the file was not reloaded" in caplog.records[0].message
    assert caplog.records[0].exc_info is not None


def test_more_targets_than_threads(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system cannot start is started later, and the others go on."""
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "target-b":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            bed.write(("a", "observe", ""), ("b", "observe", ""), ("c", "observe", ""))
            keeper.reload()
            eventually(lambda: any("was reloaded" in sentence for sentence in bed.said))
            assert list(keeper.workers) == ["a", "c"]
            assert keeper.shown["b"].phase.startswith("waiting: it cannot be started: can't start new thread")
            assert ": the file was reloaded; started: c; stopped: none" in bed.said
            assert (
                "b: cannot be started: can't start new thread; it is started when the file is read again"
                in bed.said
            )

        keeper.reload()
        eventually(lambda: "b" in keeper.workers)
