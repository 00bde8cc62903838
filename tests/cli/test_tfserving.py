"""The command line against a TensorFlow Serving, or its stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Run, Say
from tuner.adapters.tfserving.embedded import EmbeddedTFServing

pytestmark = [pytest.mark.alone, pytest.mark.tfserving]


def test_the_demo_from_beginning_to_end(tuner: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts a server, tunes it under two loads, and writes the same report as with Triton."""
    monkeypatch.setattr("tuner.cli.demo.WINDOW", 1.0)  # as many windows as ever, but shorter
    monkeypatch.setattr("tuner.cli.demo.CALIBRATION", 1.0)
    options = ["--windows", "2", "--rates", "80", "120", "--slo", "p95=300ms"]

    tuner("demo", "--server", "tfserving", *options, "--out", "run")

    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["server"]["name"] == "tfserving"
    assert report["failed_requests"] == 0
    assert report["sent_requests"] > 300
    assert [knob["name"] for knob in report["knobs"]] == ["max_batch_size", "batch_timeout"]
    assert len(report["levels"]) == 2
    assert (tmp_path / "run" / "report.html").exists()


def test_run_puts_back_what_was_there(tuner: Say, tfserving: EmbeddedTFServing) -> None:
    """With --restore nothing of ours is left in the model's folder."""
    before = sorted(path.name for path in tfserving.base_path.iterdir())
    options = ["--slo", "mean=300ms", "--rate", "60", "--windows", "3", "--window", "1s"]

    tuner("run", tfserving.target, *options, "--restore", "--out", "run")

    assert sorted(path.name for path in tfserving.base_path.iterdir()) == before


def test_the_wrong_server_name(run: Run) -> None:
    """The names that there are stand in the message."""
    done = run("demo", "--server", "torchserve")

    assert done.code == 2
    assert done.err.strip() == "error: --server: 'torchserve' is unknown; use one of triton, tfserving"


def test_the_daemon_keeps_it(tuner: Say, tmp_path: Path, tfserving: EmbeddedTFServing) -> None:
    """In apply mode, with requests of its own to see something; the history shows what was done."""
    (tmp_path / "servetune.yaml").write_text(
        f"""
targets:
  - name: mlp
    url: "{tfserving.target}"
    slo: p95=300ms
    mode: apply
    window: 1s
    probe_rate: 100
    knobs: {{max_batch_size: [1, 4, 16], batch_timeout: [0, 5ms]}}
"""
    )

    tuner("daemon", "servetune.yaml", "--windows", "3")

    assert "batch" in tuner("history", "--target", "mlp")
