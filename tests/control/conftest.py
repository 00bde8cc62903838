"""What all tests of the control see."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.daemon.daemon_bed import Bed
from tuner.control.daemon import daemon as daemon_module
from tuner.control.daemon import worker as worker_module
from tuner.profiler import attachment as attachment_module


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    for module in (attachment_module, worker_module):
        monkeypatch.setattr(module, "connect", bed.connect)
    monkeypatch.setattr(worker_module, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(daemon_module, "TICK", 0.01)
    yield bed
    assert not [t for t in threading.enumerate() if t.name.startswith("target-")]
