"""Two targets that would turn one model, by way of an ensemble."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import FileServer
from tuner.adapters import Description
from tuner.control.daemon.config import DaemonConfig
from tuner.control.daemon.turned_models import TurnedModels
from tuner.control.daemon.worker import Worker
from tuner.control.store.store import Store
from tuner.errors import InvalidInput, Unreachable
from tuner.files.yaml_file import load_yaml
from tuner.profiler import attachment as attachment_module

FILE = """state: s.db
targets:
  - {name: pipe, url: "triton://h:8001/pipe", slo: p95=30ms, mode: apply, window: 2s}
  - {name: part, url: "triton://h:8001/part", slo: p95=30ms, mode: %s, window: 2s}
"""


class Ensemble(FileServer):
    """The server of `pipe`, an ensemble with `part` in it; any other is a model."""

    def describe(self) -> Description:
        return replace(super().describe(), turns=("part", "other") if self.path.name == "pipe" else ())


@pytest.fixture
def bed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr("tests.control.daemon.daemon_bed.FileServer", Ensemble)
    return bed


@pytest.mark.parametrize("mode", ["apply", "recommend"])
def test_a_model_is_turned_by_one_target_at_a_time(bed: Bed, mode: str) -> None:
    """The other one has a mistake, as long as the first is kept; who changes nothing is in nobody's way."""
    bed.path.write_text(FILE % mode)
    pipe, part = load_yaml(bed.path, DaemonConfig).targets
    turned = TurnedModels()

    with closing(Store(bed.folder / "s.db")) as store:
        second = Worker(part, store, fast=True, windows=1, turned=turned)
        Worker(pipe, store, fast=True, windows=1, turned=turned, watch=lambda *_: second.run()).run()
        mistake, turns = second.mistake, second.turns
        later = Worker(part, store, fast=True, windows=1, turned=turned)
        later.run()

    assert (turns == 0, mistake is not None) == (mode == "apply", mode == "apply")
    if mistake is not None:
        assert "url: 'pipe' turns part on h:8001, too" in str(mistake)
        assert "mode: recommend" in str(mistake)
    assert later.turns == 1


def test_a_target_keeps_its_models_while_its_server_is_away(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other takes its place until it can attach again."""
    bed.path.write_text(FILE % "apply")
    pipe, part = load_yaml(bed.path, DaemonConfig).targets
    turned = TurnedModels()
    mistakes: list[InvalidInput | None] = []

    def connect(target: str, grids: object = None) -> FileServer:
        if first.turns == 1 and target == pipe.url and not mistakes:
            second = Worker(part, store, fast=True, windows=1, turned=turned)
            second.run()
            mistakes.append(second.mistake)
            raise Unreachable("no answer")
        return bed.connect(target)

    def watch(*_: object) -> None:
        if first.turns == 1:
            raise Unreachable("no answer for 300 s")

    monkeypatch.setattr(attachment_module, "connect", connect)

    with closing(Store(bed.folder / "s.db")) as store:
        first = Worker(pipe, store, fast=True, windows=2, turned=turned, watch=watch)
        first.run()

    assert "'pipe' turns part on h:8001, too" in str(mistakes[0])
    assert first.turns == 2
