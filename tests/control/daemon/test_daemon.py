"""The daemon: many targets in one process, and what must not happen to them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.builders import SPACE, configuration
from tests.control.daemon.daemon_bed import Bed, Running
from tests.control.daemon.file_server import FileServer
from tests.control.drive.driver_bed import Clients
from tests.waiting import LONGEST, eventually
from tuner.adapters.backend import Counters
from tuner.agents.rrl import RRL
from tuner.control.daemon import daemon as daemon_module
from tuner.control.daemon import phase as phase_module
from tuner.control.daemon import worker as worker_module
from tuner.control.daemon.config import TargetConfig
from tuner.control.daemon.report import WorkerReport
from tuner.control.daemon.target import attached
from tuner.control.daemon.worker import Worker
from tuner.control.decide.decision import Apply, Rollback
from tuner.control.store.order_book import orders_of, pin
from tuner.control.store.store import Store
from tuner.control.web.exporter import Exporter
from tuner.errors import InvalidInput
from tuner.knobs import Configuration, Grids, KnobSpace
from tuner.profiler import Profiler
from tuner.profiler import attachment as attachment_module
from tuner.profiler.load.in_flight import IN_FLIGHT, WithInFlight


def test_each_target_is_treated_as_its_mode_says(bed: Bed) -> None:
    """Observe measures, recommend decides, apply changes; all of it is written down."""
    bed.write(("a", "apply", ""), ("b", "recommend", ""), ("c", "observe", ""))

    bed.run(windows=12)

    def of(name: str) -> list[dict[str, Any]]:
        return bed.rows(
            "SELECT decision.* FROM decision JOIN target ON target.id = decision.target WHERE name = ?", name
        )

    assert bed.running("a") != configuration()
    assert {row["outcome"] for row in of("a")} <= {"applied", "held"}
    assert bed.running("b") == bed.running("c") == configuration()
    assert {row["outcome"] for row in of("b")} <= {"recommended", "held"}
    said = [sentence for sentence in bed.said if ": recommended" in sentence]
    assert 0 < len(said) < sum(row["outcome"] == "recommended" for row in of("b"))  # the same advice once
    assert {row["reason"] for row in of("c")} == {"only observing"}
    assert [len(bed.rows("SELECT * FROM window WHERE target = ?", t)) for t in (1, 2, 3)] == [12, 12, 12]


def test_an_applied_target_ends_within_its_slo(bed: Bed) -> None:
    """The default breaks it; the one it is left with does not."""
    bed.write(("a", "apply", ""))

    bed.run(windows=30)

    server = FileServer(bed.folder / "a")
    assert server.latency(configuration()) > 0.030
    assert server.latency(server.current()) <= 0.030


def test_a_later_life_goes_on(bed: Bed) -> None:
    """Window numbers, what was tried and what was learned; the best known is not explored again."""
    bed.write(("a", "apply", "guard: {patience: 3}"))
    bed.run(windows=25)
    first = bed.running()

    keeper = bed.run(windows=5)

    loop_windows = bed.rows("SELECT number FROM window ORDER BY id")
    assert [row["number"] for row in loop_windows] == list(range(1, 31))
    assert bed.running() == first
    assert any("going on after 25 windows" in sentence for sentence in bed.said)
    assert any(row["number"] == 25 for row in bed.rows("SELECT number FROM policy"))
    assert keeper.workers == {}


def test_our_clients_go_on_in_a_later_life(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit that they had; that they begin with another one is nobody's change."""
    limits: list[int] = []
    told: list[float] = []
    monkeypatch.setattr(Profiler, "changed", lambda _, ago=0.0: told.append(ago))

    @contextmanager
    def beside_clients(config: TargetConfig, grids: Grids, **others: Any) -> Iterator[Any]:
        own = {name: grid for name, grid in grids.items() if name != IN_FLIGHT}
        with attached(config, own, **others) as (attachment, setting):
            clients: Any = Clients()
            server: Any = attachment.backend
            attachment.backend = WithInFlight(server, clients, (4.0, 16.0))
            attachment.profiler = Profiler(attachment.backend, clock=server, host=server, clients=server)
            attachment.original = attachment.backend.current()
            yield attachment, setting
            limits.append(clients.in_flight)

    monkeypatch.setattr(worker_module, "attached", beside_clients)
    bed.write(("a", "observe", ""))
    bed.run(windows=1)
    with closing(Store(bed.folder / "s.db")) as store:
        wanted = pin(store, "a", {"max_batch_size": 8.0, IN_FLIGHT: 4.0})
    bed.write(("a", "apply", ""))
    bed.run(windows=2)
    told.clear()
    bed.run(windows=2)

    assert limits == [16, 4, 4]
    assert not any("somebody else" in sentence for sentence in bed.said)
    assert 0.0 not in told, "nothing was changed between the two lives"
    with closing(bed.store()) as store:
        assert orders_of(store, "a").pinned == wanted


@pytest.mark.parametrize(("most", "reached"), [(32, True), (16, False)])
def test_what_ran_at_first_stays_within_reach(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, most: int, reached: bool
) -> None:
    """Though the server runs something else when a later life begins; if it still takes that."""

    def connect(target: str, grids: Grids | None = None) -> FileServer:
        server = bed.connect(target)
        running = server.current()
        own = {knob.name: tuple(sorted({*knob.grid, running[knob.name]})) for knob in SPACE.knobs}
        own |= grids or {}
        if max(own["max_batch_size"]) > limit:
            raise InvalidInput("knob max_batch_size", f"is more than {limit}")
        server.space = KnobSpace(replace(knob, grid=own[knob.name]) for knob in SPACE.knobs)
        return server

    for module in (attachment_module, worker_module):
        monkeypatch.setattr(module, "connect", connect)
    bed.write(("a", "observe", ""))
    FileServer(bed.folder / "a").set(configuration(32, 0.005))
    limit = 32
    bed.run(windows=1)
    FileServer(bed.folder / "a").set(configuration(4, 0.002))
    limit = most
    bed.run(windows=1)

    assert bed.servers["a"].space.covers(configuration(32, 0.005)) == reached
    assert len(bed.rows("SELECT * FROM window")) == 2


def test_a_later_life_knows_when_the_server_was_changed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its profiler is new, and the server's quantiles may look back to before the change."""
    told: list[float] = []
    monkeypatch.setattr(attachment_module.Attachment, "simulated", False)
    monkeypatch.setattr(Profiler, "changed", lambda _, ago=0.0: told.append(ago))
    bed.write(("a", "apply", ""))
    for bed.now, server in ((lambda: 1000.0), ""), ((lambda: 1020.0), ""), ((lambda: 1020.0), "was changed"):
        if server:
            FileServer(bed.folder / "a").set(configuration(16, 0.01))
        bed.run(windows=2)

    changes = len(bed.rows("SELECT * FROM decision WHERE outcome = 'applied' AND time = 1020"))
    assert told[:2] == [math.inf, 20.0]
    assert told[2:] == [0.0 if changes else 20.0, 0.0]


def test_what_somebody_else_set_does_not_show_a_change(bed: Bed) -> None:
    """Its first usable window is that of what was set, which the change did not bring."""
    bed.write(("a", "apply", ""))
    reports: list[WorkerReport] = []

    def watch(_: str, report: WorkerReport) -> None:
        reports.append(report)
        if report.record.outcome == "applied" and len(reports) < 4:
            FileServer(bed.folder / "a").set(configuration(16, 0.01))

    with closing(Store(bed.folder / "s.db")) as store:
        Worker(bed.daemon().config.targets[0], store, fast=True, windows=12, watch=watch).run()

    made = [number for number, one in enumerate(reports[:-1]) if one.record.outcome == "applied"]
    wanted = {number + 1: reports[number].record.wanted for number in made}
    shown = {number for number, one in enumerate(reports) if one.first_after_change}
    assert shown == {n for n, c in wanted.items() if reports[n].record.measurement.configuration == c}
    assert shown < set(wanted)


def test_a_rollback_does_not_hide_what_its_change_was_good_for(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exported cost after a change stays beside the cost that was expected of it."""
    bed.write(("a", "apply", ""))
    good, exporter, found = configuration(), Exporter(), []
    monkeypatch.setattr(FileServer, "latency", lambda _, running: 0.010 if running == good else 0.200)

    def watch(name: str, report: WorkerReport) -> None:
        exporter.report(name, report)
        observed = exporter.registry.get_sample_value("servetune_observed_cost", {"target": name})
        found.append((report.record, observed))

    with closing(Store(bed.folder / "s.db")) as store:
        Worker(bed.daemon().config.targets[0], store, fast=True, windows=6, watch=watch).run()

    pairs = [(now, then) for now, then in pairwise(found) if isinstance(now[0].decision, Rollback)]
    assert pairs
    assert all(now[1] == then[1] == now[0].cost for now, then in pairs)


def test_windows_that_cannot_be_true_are_reported_as_unused(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the loop refuses them."""
    monkeypatch.setattr(FileServer, "latency", lambda *_: 9000.0)
    bed.write(("a", "apply", ""))
    reports: list[WorkerReport] = []
    with closing(Store(bed.folder / "s.db")) as store:
        config = bed.daemon().config.targets[0]
        Worker(config, store, fast=True, windows=2, watch=lambda _, report: reports.append(report)).run()

    assert len(reports) == 2
    assert {one.unused for one in reports} == {"the mean latency is 9000 s"}


def test_a_new_slo_begins_with_a_new_agent(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored one has learned the costs of the old SLO. One that goes on is told of its server's cores."""
    loaded: list[float] = []
    load = RRL.load

    def count(folder: Path, *arguments: Any, **options: Any) -> RRL:
        loaded.append(options["objective"].cores)
        return load(folder, *arguments, **options)

    monkeypatch.setattr(RRL, "load", count)
    bed.write(("a", "apply", ""))
    bed.run(windows=2)
    bed.path.write_text(bed.path.read_text().replace("p95=30ms", "p95=12ms"))

    bed.run(windows=2)
    fresh = not loaded
    bed.run(windows=2)

    assert fresh
    assert loaded == [2.0]
    policies = bed.rows("SELECT objective FROM policy ORDER BY id")
    assert ["0.012" in row["objective"] for row in policies] == [False, True, True]
    assert (
        len([said for said in bed.rows("SELECT * FROM event") if "another objective" in said["sentence"]])
        == 1
    )


def test_changes_wait_for_the_maintenance_window(bed: Bed) -> None:
    """Before it they are postponed."""
    bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
    bed.now = lambda: 1_700_000_000.0  # 22:13 UTC
    bed.run(windows=5)
    assert bed.running() == configuration()
    outcomes = {row["outcome"] for row in bed.rows("SELECT outcome FROM decision")}
    assert "postponed" in outcomes
    assert outcomes <= {"postponed", "held"}
    assert not any(row["exploring"] for row in bed.rows("SELECT exploring FROM decision"))

    bed.now = lambda: 1_700_000_000.0 + 4 * 3600
    bed.run(windows=5)
    assert bed.running() != configuration()


def test_what_repairs_waits_for_no_maintenance_window(bed: Bed) -> None:
    """A rollback, and what puts back what the server lost."""
    bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
    found = configuration()
    with closing(Store(bed.folder / "s.db")) as store:
        config = bed.daemon().config.targets[0]
        worker = Worker(config, store, now=lambda: 1_700_000_000.0)  # 22:13 UTC

        assert worker._permit(Rollback(configuration=found, reason="bad"))
        assert worker._permit(Apply(configuration=found, reason="lost", restores=True))
        assert not worker._permit(Apply(configuration=found, reason="better"))


def test_a_manual_change_is_respected(bed: Bed) -> None:
    """The daemon notices it, reports it, and goes on from there."""
    bed.write(("a", "apply", "guard: {patience: 2}"))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns > 20)
        bed.servers["a"].set(configuration(16, 0.01, 2))
        eventually(lambda: any("somebody else set" in sentence for sentence in bed.said))

    assert any("somebody else set" in row["sentence"] for row in bed.rows("SELECT sentence FROM event"))


def test_changes_by_others_are_counted_for_prometheus(bed: Bed) -> None:
    """Each once, for the target that they were made to."""
    bed.write(("a", "apply", ""), ("b", "observe", ""))
    exporter = Exporter()
    with closing(Store(bed.folder / "s.db")) as store:
        targets = bed.daemon().config.targets
        workers = [Worker(one, store, fast=True, windows=2, watch=exporter.report) for one in targets]
        for size in (16, 8):
            for worker in workers:
                worker.turns = 0
                worker.run()
            bed.servers["b"].set(configuration(size, 0.01, 2))

    value = exporter.registry.get_sample_value
    assert [value("servetune_foreign_changes_total", {"target": name}) for name in ("a", "b")] == [0, 1]


def test_a_name_that_moves_to_another_server_is_reported_as_another_target(bed: Bed) -> None:
    """One that goes on with its server is not. The windows of another server count from 1."""
    bed.write(("a", "apply", ""))
    reports: list[WorkerReport] = []
    with closing(Store(bed.folder / "s.db")) as store:
        here = bed.daemon().config.targets[0]
        there = here.model_copy(update={"url": f"sim://{bed.folder / 'b'}"})
        for config in (here, here, there):
            Worker(config, store, fast=True, windows=1, watch=lambda _, report: reports.append(report)).run()

    numbers = [report.target for report in reports]
    assert numbers[0] == numbers[1] != numbers[2]
    assert reports[2].record.number == 1


def test_a_target_whose_window_is_overdue_is_not_up(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody knows whether the window will end at all."""
    monkeypatch.setattr(phase_module, "OVERDUE", -100.0)
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns > 0)
        worker, server = keeper.workers["a"], bed.servers["a"]
        hanging, over = threading.Event(), threading.Event()
        counters = server.counters

        def hang() -> Counters:
            hanging.set()
            over.wait(LONGEST)
            return counters()

        server.counters = hang  # type: ignore[method-assign]
        assert hanging.wait(LONGEST)
        eventually(lambda: worker.phase == phase_module.OVERDUE_WINDOW)
        page = Exporter().page(keeper.shown, {}).decode()
        server.counters = counters  # type: ignore[method-assign]
        over.set()
        turns = worker.turns
        eventually(lambda: worker.turns > turns + 1)

    assert 'servetune_target_up{target="a"} 0.0' in page


def test_the_file_can_be_read_again(bed: Bed) -> None:
    """What is new begins, what is gone ends, what was changed begins again, all others notice nothing."""
    bed.write(("a", "apply", ""), ("b", "recommend", ""), ("c", "observe", ""))
    with Running(bed) as keeper:
        eventually(lambda: all(worker.turns for worker in keeper.workers.values()))
        kept = keeper.workers["a"]
        bed.write(("a", "apply", ""), ("b", "observe", ""), ("d", "observe", ""))
        keeper.reload()
        eventually(lambda: set(keeper.workers) == {"a", "b", "d"} and keeper.workers["d"].turns)
        assert keeper.workers["a"] is kept
        assert keeper.workers["b"].config.mode == "observe"

    assert "daemon: the file was reloaded; started: b, d; stopped: c" in [
        s.replace(": ", "daemon: ", 1) for s in bed.said if s.startswith(": ")
    ]


def test_what_is_old_is_deleted_slice_by_slice(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at each tick, from the start on, until nothing old is left; then after an hour again."""
    bed.write(("a", "observe", ""))
    slices = [5000, 5000, 7, 0]
    monkeypatch.setattr(daemon_module, "TICK", 0.0)
    monkeypatch.setattr(Store, "prune", lambda *_: slices.pop(0))

    with Running(bed) as keeper:
        eventually(lambda: not slices)
        turns = keeper.workers["a"].turns
        eventually(lambda: keeper.workers["a"].turns > turns)


def test_a_file_with_a_mistake_changes_nothing(bed: Bed) -> None:
    """The message names the line."""
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns)
        kept = keeper.workers["a"]
        bed.path.write_text(bed.path.read_text().replace("observe", "obsrve"))
        keeper.reload()
        eventually(lambda: any("not reloaded" in sentence for sentence in bed.said))
        assert keeper.workers["a"] is kept

    assert any("line 3: targets[0].mode" in sentence for sentence in bed.said)


def test_a_change_on_probation_is_not_left_to_itself(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon is stopped before a window has judged a change: it goes back to the best that is known."""
    best = configuration()
    monkeypatch.setattr(FileServer, "latency", lambda _, running: 0.015 if running == best else 0.020)
    bed.write(("a", "apply", ""))
    changes: list[Configuration] = []

    def watch(_: str, report: WorkerReport) -> None:
        if report.record.outcome == "applied":
            changes.append(bed.running())
            worker.stop()

    with closing(Store(bed.folder / "s.db")) as store:
        worker = Worker(
            bed.daemon().config.targets[0], store, fast=True, windows=50, say=bed.say, watch=watch
        )
        worker.run()

    assert len(changes) == 1
    assert changes[0] != best
    assert bed.running() == best
    assert f"a: leaving it with {SPACE.format(best)}" in bed.said


def test_only_one_daemon_uses_a_store(bed: Bed) -> None:
    """Two would undo what the other does."""
    bed.write(("a", "observe", ""))
    with Running(bed) as keeper:
        eventually(lambda: keeper.workers["a"].turns)
        with pytest.raises(InvalidInput, match=rf"another daemon \(process {os.getpid()}\)"):
            bed.daemon().run()


def test_mistakes_are_told_at_the_start(bed: Bed) -> None:
    """Before anything is attached."""
    bed.path.write_text(textwrap.dedent("targets: nothing\n"))

    with pytest.raises(InvalidInput, match="line 1: targets"):
        bed.daemon()


WATCHER = """
import sys
import tempfile
from pathlib import Path
from tests.control.daemon.daemon_bed import Bed
from tuner.control.daemon import phase as phase_module
from tuner.control.daemon import worker as worker_module
from tuner.profiler import attachment as attachment_module

bed = Bed(Path(sys.argv[1]))
attachment_module.connect = worker_module.connect = bed.connect
bed.run(windows=2)
print(*sorted({"torch", "numba", "gymnasium", "matplotlib"} & set(sys.modules)))
"""


def test_watching_needs_nothing_heavy(bed: Bed) -> None:
    """Neither what learns nor what simulates is loaded in mode observe."""
    bed.write(("a", "observe", ""))

    command = [sys.executable, "-c", WATCHER, str(bed.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "\n"
