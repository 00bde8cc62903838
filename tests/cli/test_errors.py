"""Errors that need a folder in some state; `test_mistakes.py` has the table of all others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from tests.command_line import Run, Say
from tuner.errors import Unavailable


def test_an_unwritable_run_folder_is_named_before_anything_starts(fails: Say, tmp_path: Path) -> None:
    """A file stands where the run's folder should be."""
    (tmp_path / "taken").write_text("")

    said = fails(
        "run",
        "sim://mlp",
        "--slo",
        "p95=30ms",
        "--windows",
        "1",
        "--out",
        str(tmp_path / "taken"),
    )

    assert "--out" in said


@pytest.mark.parametrize("where", ["taken", "taken/below", "/proc/x"])
def test_where_the_policy_goes_is_checked_before_anything_is_learned(
    fails: Say, tmp_path: Path, where: str
) -> None:
    """At the end of the run the policy could be saved nowhere, and what was learned would be lost."""
    (tmp_path / "taken").write_text("")

    said = fails("run", "sim://mlp", "--slo", "p95=30ms", "--save-policy", where)

    assert said.startswith(f"error: --save-policy: cannot write to {where}: ")
    assert not (tmp_path / "runs").exists()


def test_a_corrupt_policy_is_named(fails: Say, tmp_path: Path) -> None:
    """A damaged policy is refused before the server is touched."""
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.json").write_text("{")

    said = fails(
        "run",
        "sim://mlp",
        "--slo",
        "p95=30ms",
        "--policy",
        str(policy),
        "--out",
        str(tmp_path / "o"),
    )

    assert "policy" in said


def test_the_reader_may_close_the_pipe(tmp_path: Path) -> None:
    """`tuner observe ... | head -1` ends with a code of its own; 1 is that of a difference."""
    command = f"{sys.executable} -m tuner observe sim://mlp --every 1s --count 2000 | head -1"

    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert (done.returncode, done.stderr) == (141, "")


def test_a_server_that_ends_by_itself_is_an_error(fails: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote last says why: its log goes with its folder. Whoever stops it has no error."""
    stopped: list[bool] = []
    server = SimpleNamespace(
        title="Triton",
        target="triton://127.0.0.1:1/mlp",
        processes=lambda: [],
        log_tail=lambda: "out of memory",
        stop=lambda: stopped.append(True),
    )
    monkeypatch.setattr("tuner.cli.serve.start_server", lambda *_, **__: server)

    said = fails("serve", "mlp")

    assert said == "error: the embedded Triton has ended; the end of its log: out of memory\n"
    assert stopped


def test_a_store_that_cannot_be_used_at_present_has_an_exit_code_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it the unit starts the daemon again, which it does not after 2."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise Unavailable("state s.db: database or disk is full")

    monkeypatch.setattr("tuner.control.service.run_daemon", refuse)

    ended = run("daemon", "servetune.yaml")

    assert (ended.code, ended.err) == (75, "error: state s.db: database or disk is full\n")
