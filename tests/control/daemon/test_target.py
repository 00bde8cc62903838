"""Attaching to a target of the daemon's file; `config check --connect` sends it no requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.control.daemon.file_server import FileServer
from tuner.control.daemon import target as target_module
from tuner.control.daemon.config import TargetConfig
from tuner.control.daemon.target import attached, attached_quietly
from tuner.profiler.attachment import Attachment, attach_for
from tuner.setting import Load, Setting

SLO: Any = "p95=30ms"  # as the file has it


def test_a_check_sends_no_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the daemon would, and would time them."""
    seen: list[Setting] = []

    @contextmanager
    def noted(setting: Setting, target: str, **others: Any) -> Iterator[Attachment]:
        seen.append(setting)
        with attach_for(setting, target, **others) as attachment:
            attachment.load = None  # the server's own traffic
            attachment.description = replace(attachment.description, quantiles=False)
            yield attachment

    monkeypatch.setattr("tuner.profiler.attachment.connect", lambda *_: FileServer(tmp_path / "a"))
    monkeypatch.setattr(target_module, "attach_for", noted)
    shapes: dict[str, tuple[int, ...]] = {"image": (224, 224, 3)}
    config = TargetConfig(name="a", url="sim://a", slo=SLO, probe_rate=20, mode="apply", shapes=shapes)

    with attached_quietly(config, {"max_in_flight": (4.0, 8.0)}) as attachment:
        assert attachment.space.size > 1

    assert (seen[0].load, dict(seen[0].grids)) == (Load(), {})


def test_a_mistake_names_the_field_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the option of the command line."""
    monkeypatch.setattr("tuner.profiler.attachment.connect", lambda *_: FileServer(tmp_path / "a"))
    config = TargetConfig(name="a", url="sim://a", slo=SLO, objective="gpu")

    with pytest.raises(ValueError, match=r"^objective: no GPU"), attached(config, {}):
        pass


def test_a_simulated_target_has_no_inputs() -> None:
    """So shapes of them are a mistake."""
    config = TargetConfig(name="a", url="sim://mlp", slo=SLO, probe_rate=20, shapes={"image": (224, 224, 3)})

    with pytest.raises(ValueError, match=r"^shapes: a simulated target has no inputs"), attached(config, {}):
        pass
