"""The command line against a TensorFlow Serving, or its stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import own_process
from tuner.adapters.tfserving.embedded import EmbeddedTFServing

pytestmark = [pytest.mark.tfserving, pytest.mark.timeout(300)]


def test_the_demo_from_beginning_to_end(tmp_path: Path) -> None:
    """It starts a server, tunes it under two loads, and writes the same report as with Triton."""
    options = ["--windows", "2", "--rates", "20", "40", "--slo", "p95=300ms"]

    done = own_process(tmp_path, "demo", "--server", "tfserving", *options, "--out", "run")

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["server"]["name"] == "tfserving"
    assert report["failed_requests"] == 0
    assert report["sent_requests"] > 300
    assert [knob["name"] for knob in report["knobs"]] == ["max_batch_size", "batch_timeout"]
    assert len(report["levels"]) == 2
    assert (tmp_path / "run" / "report.html").exists()


def test_run_puts_back_what_was_there(tmp_path: Path) -> None:
    """With --restore nothing of ours is left in the model's folder."""
    with EmbeddedTFServing() as server:
        before = sorted(path.name for path in server.base_path.iterdir())
        options = ["--slo", "mean=300ms", "--rate", "20", "--windows", "3", "--window", "1s"]

        done = own_process(tmp_path, "run", server.target, *options, "--restore", "--out", "run")

        assert done.returncode == 0, done.stdout + done.stderr
        assert sorted(path.name for path in server.base_path.iterdir()) == before


def test_the_wrong_server_name(tmp_path: Path) -> None:
    """The names that there are stand in the message."""
    done = own_process(tmp_path, "demo", "--server", "torchserve")

    assert done.returncode == 2
    assert done.stderr.strip() == "error: --server: 'torchserve' is unknown; use one of triton, tfserving"


def test_the_daemon_keeps_it(tmp_path: Path) -> None:
    """In apply mode, with requests of its own to see something; the history tells what was done."""
    with EmbeddedTFServing() as server:
        (tmp_path / "servetune.yaml").write_text(
            f"""
targets:
  - name: mlp
    url: "{server.target}"
    slo: p95=300ms
    mode: apply
    window: 1s
    probe_rate: 15
    knobs: {{max_batch_size: [1, 4, 16], batch_timeout: [0, 5ms]}}
"""
        )

        done = own_process(tmp_path, "daemon", "servetune.yaml", "--windows", "4")

        assert done.returncode == 0, done.stdout + done.stderr
        history = own_process(tmp_path, "history", "--target", "mlp")
        assert history.returncode == 0, history.stdout + history.stderr
        assert "batch" in history.stdout
