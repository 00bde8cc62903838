"""The command line against a real Triton: bad input leaves nothing changed, a dead server is waited for."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.command_line import Say
from tuner.adapters import connect
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.profiler.window import Limits

pytestmark = [pytest.mark.alone, pytest.mark.triton]

PATIENT = """
    import math
    from tuner.__main__ import main
    from tuner.profiler import attachment
    from tuner.profiler.window import Limits
    attachment.LIMITS = Limits(lateness=math.inf)
    main()
"""
"""The command line, to which no window is disturbed because this machine sends late."""


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
    fails: Say, embedded: EmbeddedTriton, change: tuple[str, str], arguments: list[str], names: str
) -> None:
    """Exit code 2, one sentence, and the server as it was."""
    before = running(embedded.target)
    target = embedded.target.replace(*change) if change[0] else embedded.target

    assert names in fails("run", target, *arguments, "--windows", "1")
    assert running(embedded.target) == before


def test_a_server_that_takes_no_changes_can_be_watched(
    tuner: Say, fails: Say, fixed_server: EmbeddedTriton
) -> None:
    """`run` names the flag; `observe` works and says what it cannot see."""
    refused = fails("run", fixed_server.target, "--slo", "p95=30ms", "--rate", "20")
    watched = tuner("observe", fixed_server.target, "--count", "1")

    assert "--model-control-mode=explicit" in refused
    assert "summary_latencies" in watched.replace("\n", "")


def test_quantile_slo_without_quantiles_says_how_to_get_them(fails: Say) -> None:
    """A p95 SLO on a server that exports means only needs a flag or --rate."""
    with EmbeddedTriton(options=TritonOptions(summaries=False)) as server:
        refused = fails("run", server.target, "--slo", "p95=30ms", "--windows", "1")

    assert "summary_latencies" in refused


def test_a_configuration_the_server_refuses_is_skipped_and_the_run_goes_on(
    tuner: Say, tmp_path: Path, embedded: EmbeddedTriton
) -> None:
    """The model refuses 0 threads; the old configuration goes on serving and no request fails."""
    grid = "parameters.intra_op_threads=0,1"

    tuner("sweep", embedded.target, "--rate", "20", "--seconds", "1s", "--grid", grid)

    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert [bool(row["refused"]) for row in rows] == [True, False]
    assert all(window["failures"] == 0 for row in rows for window in row["windows"])


def test_a_server_that_dies_is_waited_for(tmp_path: Path) -> None:
    """The run notices, keeps the last good configuration, restores it, and ends in good order."""
    with EmbeddedTriton("small") as server:
        command = [sys.executable, "-u", "-c", textwrap.dedent(PATIENT), "run", server.target]
        options = ["--slo", "p95=2s", "--rate", "60", "--windows", "10", "--window", "1s", "--out", "r"]
        process = subprocess.Popen([*command, *options], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        read_until(process.stdout, "the first window", lambda text: "hold" in text or "apply" in text)
        server.kill()
        read_until(process.stdout, "waiting", lambda text: "waiting for the server" in text)
        server.restart()
        process.communicate(timeout=900)

    assert process.returncode == 0
    state = json.loads((tmp_path / "r" / "state.json").read_text())
    assert state["last_good"] is not None
    assert state["current"] == state["last_good"]


def read_until(output: IO[str], what: str, holds: Callable[[str], bool]) -> None:
    """Read lines until their text, however it was broken into lines, is as wanted."""
    text = ""
    for line in output:
        text = " ".join(f"{text} {line}".split())
        if holds(text):
            return
    pytest.fail(f"the run ended before {what}: {text}")


def test_reconfiguring_under_load_loses_no_request(
    tuner: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run that changes the server under 100 requests/s: every request is answered."""
    monkeypatch.setattr("tuner.profiler.attachment.LIMITS", Limits(lateness=math.inf))
    options = ["--slo", "p95=500ms", "--rate", "100", "--windows", "8", "--window", "1s"]

    with EmbeddedTriton("small") as server:  # no slow machine is overloaded by 100/s
        tuner("run", server.target, *options, "--out", "r", "--restore")

    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["reconfigurations"] > 0
    assert report["failed_requests"] == 0
