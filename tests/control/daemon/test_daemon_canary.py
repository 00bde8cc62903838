"""The daemon with a target of several replicas: one tries a change before the rest, whoever watches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.builders import configuration
from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import RATE, FileServer
from tuner.adapters import ApplyReport, Counters
from tuner.adapters.replicas.canary import Canary
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.knobs import Configuration
from tuner.profiler.source import ClientSample, HostReading

NAMES = ("a1", "a2", "a3")


Changes = list[tuple[str, Configuration, Configuration]]


class Replica(FileServer):
    """One of a fleet whose time it shares; the mean latency shows what it runs."""

    def __init__(self, path: Path, log: Changes, spent: list[float]) -> None:
        super().__init__(path)
        self._log, self._spent = log, spent

    def apply(self, wanted: Configuration) -> ApplyReport:
        before = self.current()
        report = super().apply(wanted)
        if report.changed:
            self._log.append((self.path.name, before, wanted))
        return report

    def counters(self) -> Counters:
        done = int(self.time * RATE)
        return dataclasses.replace(super().counters(), latency=self._spent[0], requests=done, time=self.time)


class Fleet(ReplicaGroup):
    """Replicas that are also clock, machine and clients, as simulated targets are."""

    cores, rate = 2.0, RATE

    def __init__(self, folder: Path, log: Changes) -> None:
        self.time = 0.0
        self.spent = {name: [0.0] for name in NAMES}  # s, all requests of a replica together
        self.servers = {name: Replica(folder / name, log, self.spent[name]) for name in NAMES}
        super().__init__(Membership("file://fleet", lambda: list(NAMES), self.servers.__getitem__))

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        for name, server in self.servers.items():
            server.time = self.time
            self.spent[name][0] += seconds * RATE * server.latency(server.current())

    def set_rate(self, rate: float) -> None:
        pass

    def sample(self, start: float, end: float) -> ClientSample:
        worst = max(self.servers.values(), key=lambda server: server.latency(server.current()))
        worst.time = self.time
        return worst.sample(start, end)

    def read(self) -> HostReading:
        return self.servers["a1"].read()


@pytest.fixture
def fleet(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A bed whose target is a fleet; `log` has every change of a replica in order."""
    from tuner.control.daemon import worker as worker_module
    from tuner.profiler import attachment as attachment_module

    bed.log = []  # type: ignore[attr-defined]

    def connect(target: str, grids: object = None) -> Fleet:
        assert urlsplit(target).path.endswith("fleet")
        return Fleet(bed.folder, bed.log)  # type: ignore[attr-defined]

    for module in (attachment_module, worker_module):
        monkeypatch.setattr(module, "connect", connect)
    return bed


def test_a_change_goes_to_one_and_then_to_the_rest(fleet: Bed) -> None:
    """Every change that was applied was tried on the first replica; all end with the same configuration."""
    fleet.write(("fleet", "apply", ""))

    fleet.run(windows=25)

    applied = fleet.rows(
        "SELECT configuration FROM decision WHERE outcome = 'applied' AND action = 'apply' "
        "AND configuration != previous"
    )
    tried = [new for name, _, new in fleet.log if name == "a1"]  # type: ignore[attr-defined]
    assert isinstance(Fleet(fleet.folder, []), Canary)
    assert len(applied) >= 3
    for row in applied:
        assert Configuration(json.loads(row["configuration"])) in tried
    assert len({fleet.running(name) for name in NAMES}) == 1
    assert FileServer(fleet.folder / "a1").latency(fleet.running("a1")) <= 0.030


def test_a_target_ran_at_first_what_most_of_its_replicas_ran(fleet: Bed) -> None:
    """Not what the odd one ran when the daemon first came: when all restart, they run what most did."""
    FileServer(fleet.folder / "a3").set(configuration(16))
    fleet.write(("fleet", "observe", ""))

    fleet.run(windows=1)

    assert json.loads(fleet.rows("SELECT original FROM target")[0]["original"]) == dict(configuration())


def test_what_is_bad_on_one_never_reaches_the_rest(fleet: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken back there, and the store says why: beginning from a good one, every bad try ends so."""
    monkeypatch.setattr("tuner.agents.rrl.agent.estimable", lambda *_: False)  # else it makes no bad try
    good = configuration(8, 0.002, 2)
    for name in NAMES:
        FileServer(fleet.folder / name).set(good)
    fleet.write(("fleet", "apply", "guard: {patience: 1000}"))

    fleet.run(windows=40)

    failed = fleet.rows("SELECT error, configuration FROM decision WHERE outcome = 'failed'")
    assert failed
    assert all(row["error"].startswith("canary a1: even the mean") for row in failed)
    broken = {Configuration(json.loads(row["configuration"])) for row in failed}
    assert not [entry for entry in fleet.log if entry[0] != "a1" and entry[2] in broken]  # type: ignore[attr-defined]
    assert all(FileServer(fleet.folder / n).latency(fleet.running(n)) <= 0.030 for n in NAMES)
