"""The command line against a real Triton: bad input leaves nothing changed, a dead server is waited for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import own_process
from tests.conftest import sender
from tuner.adapters import connect
from tuner.adapters.triton.embedded import EmbeddedTriton

pytestmark = [pytest.mark.triton, pytest.mark.timeout(240)]


def running(target: str) -> object:
    """The whole configuration a server runs."""
    backend = connect(target)
    try:
        return backend.original  # type: ignore[attr-defined]
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("change", "arguments", "names"),
    [
        (("/mlp", "/resnet"), ["--slo", "p95=30ms"], "models loaded: mlp"),
        (("metrics=", "metrics=1"), ["--slo", "p95=30ms"], "metrics"),
        (("", ""), ["--slo", "p95=30ms", "--knob", "max_batch_size=1,128"], "knob max_batch_size"),
        (("", ""), ["--slo", "p95=30ms", "--knob", "parameters.colour=1,2"], "intra_op_threads"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    tmp_path: Path, embedded: EmbeddedTriton, change: tuple[str, str], arguments: list[str], names: str
) -> None:
    """Exit code 2, one sentence, and the server as it was."""
    before = running(embedded.target)
    target = embedded.target.replace(*change) if change[0] else embedded.target

    done = own_process(tmp_path, "run", target, *arguments, "--windows", "1")

    assert done.returncode == 2
    assert names in done.stderr
    assert "Traceback" not in done.stderr
    assert running(embedded.target) == before


def test_a_server_that_takes_no_changes_can_be_watched(tmp_path: Path, fixed_server: EmbeddedTriton) -> None:
    """`run` names the flag; `observe` works and says what it cannot see."""
    refused = own_process(tmp_path, "run", fixed_server.target, "--slo", "p95=30ms", "--rate", "20")
    watched = own_process(tmp_path, "observe", fixed_server.target, "--count", "1")

    assert refused.returncode == 2
    assert "--model-control-mode=explicit" in refused.stderr
    assert watched.returncode == 0
    assert "summary_latencies" in watched.stdout.replace("\n", "")


def test_quantile_slo_without_quantiles_says_how_to_get_them(tmp_path: Path) -> None:
    """A p95 SLO on a server that exports means only needs a flag or --rate."""
    from tuner.adapters.triton.embedded import TritonOptions

    with EmbeddedTriton(options=TritonOptions(summaries=False)) as server:
        done = own_process(tmp_path, "run", server.target, "--slo", "p95=30ms", "--windows", "1")

    assert done.returncode == 2
    assert "summary_latencies" in done.stderr


def test_a_configuration_the_server_refuses_is_skipped_and_the_run_goes_on(
    tmp_path: Path, embedded: EmbeddedTriton
) -> None:
    """The model refuses 0 threads; the old configuration goes on serving and no request fails."""
    done = own_process(
        tmp_path, "sweep", embedded.target, "--rate", "20", "--seconds", "1s",
        "--grid", "parameters.intra_op_threads=0,1",
    )  # fmt: skip

    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert done.returncode == 0, done.stderr
    assert [bool(row["refused"]) for row in rows] == [True, False]
    assert all(window["failures"] == 0 for row in rows for window in row["windows"])


def test_a_server_that_dies_is_waited_for(tmp_path: Path) -> None:
    """The run notices, keeps the last good configuration, restores it, and ends in good order."""
    with EmbeddedTriton() as server:
        command = [sys.executable, "-m", "tuner", "run", server.target, "--slo", "p95=500ms", "--rate", "50"]
        options = ["--windows", "14", "--window", "1s", "--out", "r"]
        process = subprocess.Popen([*command, *options], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        printed = [line for line, _ in zip(process.stdout, range(4), strict=False)]
        server.kill()
        time.sleep(8.0)  # longer than the adapter waits for an answer
        server.restart()
        printed += process.communicate(timeout=150)[0].splitlines(keepends=True)

    text = " ".join("".join(printed).split())  # however it was broken into lines
    assert process.returncode == 0, text
    assert "waiting for the server" in text
    state = json.loads((tmp_path / "r" / "state.json").read_text())
    assert state["last_good"] is not None
    assert state["current"] == state["last_good"]


def test_reconfiguring_under_load_loses_no_request(tmp_path: Path, embedded: EmbeddedTriton) -> None:
    """A short run that changes the server under 50 requests/s: every request is answered."""
    sender(embedded.target)(5)

    done = own_process(
        tmp_path, "run", embedded.target, "--slo", "p95=500ms", "--rate", "50", "--windows", "6",
        "--window", "1s", "--out", "r", "--restore",
    )  # fmt: skip

    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert done.returncode == 0, done.stderr
    assert report["reconfigurations"] > 0
    assert report["failed_requests"] == 0
