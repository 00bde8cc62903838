"""What goes wrong with one target of a daemon: it is told, and disturbs no other."""

from __future__ import annotations

import errno
import math
import tempfile
import threading
from contextlib import closing
from typing import Any, NoReturn

import pytest

from tests.builders import configuration
from tests.control.daemon.daemon_bed import Bed, Running
from tests.control.daemon.file_server import FileServer
from tests.waiting import LONGEST, eventually
from tuner.adapters import ApplyReport
from tuner.control.daemon import daemon as daemon_module
from tuner.control.daemon import worker as worker_module
from tuner.control.daemon.daemon import Daemon
from tuner.control.daemon.report import WorkerReport
from tuner.control.daemon.worker import Worker
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, Refused, TimedOut, Unreachable
from tuner.knobs import Configuration


def test_a_server_that_is_away_disturbs_no_other(bed: Bed) -> None:
    """It is tried again, later and later; the others go on."""
    bed.write(("a", "apply", ""), ("b", "apply", ""))
    away = bed.folder / "a.away"
    away.touch()
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["b"].turns > 5)
        assert keeper.workers["a"].turns == 0
        assert keeper.workers["a"].phase == "waiting: no answer"
        away.unlink()
        eventually(lambda: keeper.workers["a"].turns > 3)

    assert bed.said.count("a: no answer; trying again until it works") == 1


def test_what_a_target_is_asked_for_in_vain_is_an_error(bed: Bed) -> None:
    """No GPU can be seen. It is said once, and tried again: the server may move to a machine with one."""
    bed.write(("a", "apply", "objective: gpu"), ("b", "apply", ""))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["b"].turns > 5)
        assert keeper.workers["a"].phase.startswith("waiting: ")

    assert len(bed.errors) == 1
    assert bed.errors[0].startswith("a: objective: no GPU can be seen")
    assert bed.errors[0].endswith("; trying again until it works")


def test_a_number_of_windows_ends_at_a_mistake(bed: Bed) -> None:
    """A target without windows would keep the daemon for ever; the others have theirs."""
    bed.write(
        ("a", "apply", "objective: gpu"), ("b", "apply", ""), ("c", "apply", "knobs: {foo: {least: 1}}")
    )

    with pytest.raises(InvalidInput, match="targets: 2 of 3 cannot be kept as they are") as error:
        bed.run(windows=3)

    assert "\n  c: c knob foo: unknown" in str(error.value)
    assert len(bed.errors) == 2
    assert len(bed.rows("SELECT * FROM window")) == 3


def test_a_server_that_goes_is_told_at_once(bed: Bed) -> None:
    """Not when it was waited for in vain; it runs again when a window was measured."""
    bed.write(("a", "observe", ""))
    waiting = []
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].phase == "running")
        worker, server = keeper.workers["a"], bed.servers["a"]
        counters, current = server.counters, server.current

        def fail() -> NoReturn:
            server.current = lambda: waiting.append(worker.phase) or current()  # type: ignore[method-assign, func-returns-value]
            raise Unreachable("no metrics")

        server.counters = fail  # type: ignore[method-assign]
        eventually(lambda: len(waiting) > 3)
        server.counters, server.current = counters, current  # type: ignore[method-assign]
        eventually(lambda: worker.phase == "running")

    assert set(waiting) == {"waiting: no metrics"}


def test_a_target_that_hangs_is_not_begun_twice(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon goes on without it, says so, and begins it when it has ended."""
    monkeypatch.setattr(daemon_module, "PATIENCE", 0.2)
    entered, hanging = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        hanging.wait(LONGEST)

    bed.write(("a", "apply", ""), ("b", "observe", ""))
    try:
        with Running(bed) as keeper:
            eventually(lambda: "a" in bed.servers)
            bed.servers["a"].before_change = hang
            eventually(entered.is_set)
            bed.write(("a", "observe", ""), ("b", "observe", ""))
            keeper.reload()
            eventually(lambda: any("still hangs" in sentence for sentence in bed.said))
            assert keeper.workers["a"].config.mode == "apply"
            eventually(lambda: ": the file was reloaded; started: none; stopped: none" in bed.said)
            shown = keeper.shown["a"]
            assert shown.config.mode == "observe"
            assert shown.phase == "waiting: it still hangs; it is started when that has ended"
            monkeypatch.setattr(daemon_module, "PATIENCE", LONGEST)  # for the end, on a slow machine
            hanging.set()
            eventually(lambda: keeper.workers["a"].config.mode == "observe" and keeper.workers["a"].turns)
            assert keeper.shown == keeper.workers
    finally:
        hanging.set()


def hang_in_a_change(bed: Bed, keeper: Daemon, over: threading.Event) -> Worker:
    """Wait until the target `a` hangs in the middle of a change, until `over`; return its worker."""
    hanging = threading.Event()
    eventually(lambda: "a" in bed.servers)
    bed.servers["a"].before_change = lambda: hanging.set() or over.wait(LONGEST)  # type: ignore[func-returns-value]
    assert hanging.wait(LONGEST)
    return keeper.workers["a"]


def test_a_stop_waits_for_no_reload(bed: Bed) -> None:
    """A target hangs while the file is read again: all have two minutes to end, and not four."""
    over = threading.Event()
    bed.write(("a", "apply", ""))
    try:
        with Running(bed) as keeper:
            hung = hang_in_a_change(bed, keeper, over)
            bed.write(("a", "observe", ""))
            keeper.reload()
            eventually(lambda: hung.stopping)
            keeper.stop()
            eventually(lambda: math.isfinite(hung._deadline), LONGEST / 4)  # the process ends by then
            over.set()
    finally:
        over.set()

    assert not [sentence for sentence in bed.said if "reloaded" in sentence or "did not finish" in sentence]


def test_targets_begin_one_after_the_other(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and when the file is read again: their windows must not all end at one moment."""
    delays: list[float] = []

    class Idle(Worker):
        def run(self, delay: float = 0.0) -> None:
            delays.append(delay)
            self._stop.wait(LONGEST)

    monkeypatch.setattr(daemon_module, "Worker", Idle)
    monkeypatch.setattr(bed, "daemon", lambda: Daemon(bed.path, say=bed.say))
    bed.write(*[(name, "observe", "") for name in "abc"])
    with Running(bed) as keeper:
        eventually(lambda: len(delays) == 3)
        bed.write(*[(name, "recommend", "") for name in "abc"])
        keeper.reload()
        eventually(lambda: len(delays) == 6)

    assert sorted(delays) == pytest.approx([0.0, 0.0, 0.01, 0.01, 0.02, 0.02])


def test_a_target_that_hung_begins_again_with_the_settings_that_it_had(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked to stop for a change of the file, which was taken back while it hung."""
    monkeypatch.setattr(daemon_module, "PATIENCE", 0.2)
    over = threading.Event()
    bed.write(("a", "apply", ""))
    try:
        with Running(bed) as keeper:
            hung = hang_in_a_change(bed, keeper, over)
            bed.write(("a", "observe", ""))
            keeper.reload()
            eventually(lambda: any("still hangs" in sentence for sentence in bed.said))
            bed.write(("a", "apply", ""))
            keeper.reload()
            eventually(lambda: sum("still hangs" in sentence for sentence in bed.said) == 2)
            monkeypatch.setattr(daemon_module, "PATIENCE", LONGEST)  # for the end, on a slow machine
            over.set()
            eventually(lambda: keeper.workers["a"] is not hung and keeper.workers["a"].turns)
            assert keeper.workers["a"].config.mode == "apply"
    finally:
        over.set()


def test_a_new_name_waits_for_the_one_that_hangs_on_its_server(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would undo what the other does. A target that has gone from the file is forgotten when it ends."""
    monkeypatch.setattr(daemon_module, "PATIENCE", 0.2)
    hanging, over = threading.Event(), threading.Event()
    text = "state: s.db\ntargets: [{{name: {}, url: 'triton://h:8001/m', slo: p95=30ms, mode: apply}}]"
    bed.path.write_text(text.format("old"))
    try:
        with Running(bed) as keeper:
            eventually(lambda: "m" in bed.servers)
            bed.servers["m"].before_change = lambda: hanging.set() or over.wait(LONGEST)  # type: ignore[func-returns-value]
            assert hanging.wait(LONGEST)
            bed.path.write_text(text.format("new"))
            keeper.reload()
            said = "new: 'old', which has its server, still hangs; it is started when that has ended"
            eventually(lambda: said in bed.said)
            assert list(keeper.workers) == ["old"]
            eventually(lambda: any("was reloaded" in sentence for sentence in bed.said))
            phases = {name: target.phase for name, target in keeper.shown.items()}
            assert phases["new"] == f"waiting: {said.removeprefix('new: ')}"
            assert phases["old"].startswith("waiting: it was stopped, and did not finish within")
            monkeypatch.setattr(daemon_module, "PATIENCE", LONGEST)  # for the end, on a slow machine
            over.set()
            eventually(lambda: list(keeper.workers) == ["new"] and keeper.workers["new"].turns)
            assert keeper.shown == keeper.workers
    finally:
        over.set()


@pytest.mark.parametrize("within", [0.1, 60.0])
def test_a_change_is_undone_if_there_is_time(bed: Bed, within: float) -> None:
    """If not, the process would end in the middle of that: the next life judges the change."""
    bed.write(("a", "apply", ""))
    config = bed.daemon().config.targets[0]
    with closing(Store(bed.folder / "s.db")) as store:
        worker = Worker(config, store, fast=True, say=bed.say, watch=lambda *_: begin())

        def begin() -> None:
            bed.servers["a"].before_change = lambda: worker.stop(within)

        worker.run()
        Worker(config, store, fast=True, windows=1, say=bed.say).run()

    said = " ".join(bed.said)
    assert ("leaving it with" in said) == (within == 60.0)
    assert ("there is no time to undo the last change" in said) == (within == 0.1)
    assert ("was judged; it is on probation again" in said) == (within == 0.1)


def test_how_long_a_change_takes_is_known_to_a_later_life(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no window has judged it yet."""
    bed.write(("a", "apply", ""))
    config = bed.daemon().config.targets[0]
    with closing(Store(bed.folder / "s.db")) as store:
        for _ in range(2):
            worker = Worker(config, store, fast=True, say=bed.say, watch=lambda *_: unjudged())

            def unjudged(worker: Worker = worker) -> None:
                monkeypatch.setattr(FileServer, "quiet", False)
                worker.stop(0.1)

            worker.run()

    assert sum("there is no time to undo the last change" in words for words in bed.said) == 2


def test_a_model_that_is_deployed_anew_is_attached_to_anew(bed: Bed) -> None:
    """Its knobs are others; before that a change is judged. Nothing is taken back, and no window is lost."""
    bed.write(("a", "apply", ""))
    config = bed.daemon().config.targets[0]
    with closing(Store(bed.folder / "s.db")) as store:
        worker = Worker(config, store, fast=True, windows=8, say=bed.say, watch=lambda *_: watch())

        def watch() -> None:
            if worker.turns == 1:
                bed.servers["a"].deployed_anew = "it is another one"  # type: ignore[attr-defined]

        worker.run()

    told = [words for words in bed.said if "apply, it runs" in words or "another one" in words]
    assert told[1] == "a: it is another one; its knobs are read anew"
    assert ["it runs" in words for words in told] == [True, False, True]
    assert "going on after" in told[2]
    assert not any("leaving it" in words or "trying again" in words for words in bed.said)
    assert (worker.turns, worker.phase) == (8, "stopped")


def test_a_change_that_came_about_late_takes_as_long(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was waited for: to undo it may take that long, too."""
    bed.write(("a", "apply", ""))
    config = bed.daemon().config.targets[0]
    with closing(Store(bed.folder / "s.db")) as store:
        worker = Worker(config, store, fast=True, say=bed.say, watch=lambda *_: watch())

        def watch() -> None:
            if worker.turns == 1:
                bed.servers["a"].after_change = slow
            elif "came about after all" in bed.said[-1]:
                worker.stop(60.0)

        def slow() -> NoReturn:
            monkeypatch.setattr(FileServer, "quiet", False)
            bed.servers["a"].time += 90.0
            raise TimedOut("no answer")

        worker.run()

    assert "there is no time to undo the last change" in bed.said[-1]


@pytest.mark.parametrize("ends", [False, True])
def test_only_a_daemon_that_ends_is_short_of_time(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """It waits no longer for a target that has gone from the file, but that one still undoes its change."""
    monkeypatch.setattr(daemon_module, "PATIENCE", 0.2)
    bed.pace = 0.01
    bed.write(("a", "apply", ""), ("b", "observe", ""))
    changed = threading.Event()
    with Running(bed) as keeper:
        eventually(lambda: "a" in bed.servers)

        def change() -> None:
            bed.servers["a"].quiet = False
            changed.set()

        bed.servers["a"].after_change = change
        eventually(changed.is_set)
        if not ends:
            bed.write(("b", "observe", ""))
            keeper.reload()
            eventually(lambda: list(keeper.workers) == ["b"])

    words = ["a: leaving it with", "a: there is no time to undo the last change"]
    eventually(lambda: words[ends] in " ".join(bed.said))
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("target-")])
    assert words[not ends] not in " ".join(bed.said)


def test_disturbed_windows_in_a_row_are_logged_once(bed: Bed) -> None:
    """A machine that is never quiet teaches nothing, and nothing is changed."""
    bed.write(("a", "apply", ""))
    FileServer.quiet = False
    try:
        bed.run(windows=12)
    finally:
        FileServer.quiet = True

    assert sum("5 windows in a row were disturbed" in sentence for sentence in bed.said) == 1
    assert bed.running() == configuration()


def test_an_error_that_comes_again_is_traced_once(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of ours fills no log."""
    bed.write(("a", "observe", ""))
    tries = []

    def fail(*_: object) -> NoReturn:
        tries.append(True)
        raise RuntimeError("a bug")

    monkeypatch.setattr(worker_module.Worker, "_driver", fail)
    with Running(bed):
        eventually(lambda: len(tries) > 3)

    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert bed.said.count("a: RuntimeError: a bug; trying again until it works") == 1


def test_an_unexpected_error_is_survived(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one target; it begins again after a pause."""
    bed.write(("a", "observe", ""))
    failed: list[bool] = []

    def fail_once(self: Any, *_: Any) -> Any:
        if not failed:
            failed.append(True)
            raise RuntimeError("a bug")
        return original(self, *_)

    original = worker_module.Worker._report_turn
    monkeypatch.setattr(worker_module.Worker, "_report_turn", fail_once)
    bed.run(windows=4)

    assert "a: RuntimeError: a bug; trying again until it works" in bed.said
    assert len(bed.rows("SELECT * FROM window")) >= 4


def test_a_policy_that_cannot_be_used_is_learned_anew(bed: Bed) -> None:
    """The message names the store that holds the policy, not a folder that was there for a moment."""
    bed.write(("a", "apply", ""))
    bed.run(windows=2)
    store = Store(bed.folder / "s.db")
    with store.writing() as db:
        db.execute("UPDATE policy_file SET content = X'00'")
    store.close()

    bed.run(windows=2)

    told = [sentence for sentence in bed.said if "the stored agent cannot be used" in sentence]
    assert len(told) == 1
    assert str(bed.folder / "s.db") in told[0]
    assert "servetune-" not in told[0]
    assert told[0].endswith("; a new one begins, with the stored windows that have the present knobs")
    assert "train" not in told[0]
    assert len(bed.rows("SELECT * FROM window")) == 4


def test_a_full_disk_of_temporary_files_ends_no_target(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored agent is learned anew, and the present one is not saved; measuring goes on."""

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    bed.write(("a", "recommend", ""))
    with monkeypatch.context() as context:
        context.setattr(tempfile, "mkdtemp", full)
        bed.run(windows=2)
    assert [sentence for sentence in bed.said if "stored agent" in sentence] == []
    bed.run(windows=2)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    bed.run(windows=2)

    said = [sentence for sentence in bed.said if "No space left" in sentence]
    assert len(bed.rows("SELECT * FROM window")) == 6
    assert [sentence.partition("[")[0] for sentence in said] == [
        "a: the agent could not be saved: a folder for temporary files cannot be used: ",
        "a: the stored agent cannot be used: ",
        "a: the agent could not be saved: a folder for temporary files cannot be used: ",
    ]


def test_changes_that_fail_one_after_the_other_are_reported(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many, in every turn, also while none is tried; one that comes about ends that."""
    change, refused = FileServer.apply, list[Configuration]()
    reports: list[WorkerReport] = []

    def refuse(server: FileServer, wanted: Configuration) -> ApplyReport:
        if len(refused) < 3:
            refused.append(wanted)
            raise Refused("out of memory")
        return change(server, wanted)

    monkeypatch.setattr(FileServer, "apply", refuse)
    bed.write(("a", "apply", ""))
    with closing(Store(bed.folder / "s.db")) as store:
        config = bed.daemon().config.targets[0]
        Worker(config, store, fast=True, windows=12, watch=lambda _, one: reports.append(one)).run()

    failed = [one.failed_changes for one in reports]
    came_about = [one.record.outcome for one in reports].index("applied")
    assert failed[:3] == [1, 2, 3]
    assert set(failed[3:came_about]) == {3}
    assert set(failed[came_about:]) == {0}
