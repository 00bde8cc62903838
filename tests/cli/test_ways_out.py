"""However `tuner run` ends, it leaves the server in order: with what ran before, or the best it knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.builders import configuration
from tests.command_line import Say
from tests.control.daemon.file_server import FileServer
from tuner.command import app
from tuner.knobs import Configuration
from tuner.report import Report

RUN = """
import os, shutil, signal, sys
from pathlib import Path

from tests.control.daemon.file_server import FileServer
from tuner.errors import Refused
from tuner.profiler import attachment

sys.modules["matplotlib"] = None  # the figures of a report take longer than all else here
folder, way, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = FileServer(folder / "server")
sample = server.sample


def noted(start, end):
    with (folder / "measured").open("a") as file:
        file.write(server.path.read_text() + "\\n")
    if way == "away":
        (folder / "server.away").touch()
    return sample(start, end)


server.sample = noted
applied = 0


def end() -> None:
    if way in ("SIGHUP", "SIGTERM", "SIGINT"):
        os.kill(os.getpid(), getattr(signal, way))
    elif way == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    elif way == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif way == "tee":  # Ctrl-C ends what reads, too
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        os.kill(os.getpid(), signal.SIGINT)
    elif way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "refused":
        server.before_change = refuse
    elif way == "folder":
        shutil.rmtree(folder / "out")
    elif way == "markup":
        server.before_change = lambda: None
        refuse()


def refuse() -> None:
    raise Refused("no model [/INST] with [red a\\nforged line")


def change() -> None:
    global applied
    applied += 1
    if applied == at:
        end()


setattr(server, "before_change" if way == "markup" else "after_change", change)
if way == "twice":
    asked = server.current

    def again():
        os.kill(os.getpid(), signal.SIGINT)
        return asked()

    def change():
        global applied
        applied += 1
        if applied == at:
            server.current = again
            os.kill(os.getpid(), signal.SIGINT)

    server.after_change = change
if way == "killed":
    from tuner.cli import run_report

    run_report.REPORT_EVERY = 0.0
attachment.connect = lambda *_: server
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["tuner", "run", "sim://mlp", "--slo", "p95=30ms", "--out", str(folder / "out"), *sys.argv[4:]]
import tuner.__main__
tuner.__main__.main()
"""
WAYS = ("SIGHUP", "SIGTERM", "SIGINT", "twice", "pipe", "full", "folder", "markup")


def run(folder: Path, way: str, at: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run until a change, which ends the run in one of the ways; the server's state outlives it."""
    command = [sys.executable, "-c", RUN, str(folder), way, str(at), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_what_ran_before_is_restored(tmp_path: Path, way: str) -> None:
    """With --restore, when something better was found."""
    done = run(tmp_path, way, 4, "--restore", "--windows", "30")

    assert FileServer(tmp_path / "server").current() == configuration(), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("way", "at"), [("SIGHUP", 1), ("SIGHUP", 4), ("pipe", 4), ("full", 1), ("folder", 4), ("markup", 1)]
)
def test_the_best_that_is_known_is_left(tmp_path: Path, way: str, at: int) -> None:
    """Without --restore: the best that windows have shown, but not a trial that none has; and a report."""
    done = run(tmp_path, way, at, "--windows", "30" if way == "markup" else "0")

    server = FileServer(tmp_path / "server")
    measured = [Configuration(json.loads(line)) for line in (tmp_path / "measured").read_text().splitlines()]
    assert server.current() == min(measured, key=server.latency), done
    assert Report.load(tmp_path / "out" / "report.json").reconfigurations > 0 or at == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("way", "code", "options"),
    [("SIGTERM", 0, ()), ("pipe", 141, ()), ("full", 2, ()), ("tee", 0, ()), ("refused", 2, ("--restore",))],
)
def test_what_was_learned_is_saved(tmp_path: Path, way: str, code: int, options: tuple[str, ...]) -> None:
    """However the run ends, and with the exit code that the pages name."""
    windows = "6" if way == "refused" else "0"
    done = run(tmp_path, way, 4, "--windows", windows, "--save-policy", str(tmp_path / "p"), *options)

    assert done.returncode == code, done
    assert (tmp_path / "p" / "policy.json").exists()
    assert Report.load(tmp_path / "out" / "report.json").windows


def test_a_run_that_learned_nothing_leaves_the_policy_of_another(tmp_path: Path) -> None:
    """The server went away in its first window, for so long that the run gave up."""
    run(tmp_path, "SIGINT", 2, "--windows", "0", "--save-policy", str(tmp_path / "p"))
    before = (tmp_path / "p" / "policy.json").stat()

    done = run(tmp_path, "away", 0, "--windows", "0", "--save-policy", str(tmp_path / "p"))

    assert done.returncode == 2, done
    assert (tmp_path / "p" / "policy.json").stat() == before


def test_a_run_that_was_killed_leaves_a_report(tmp_path: Path) -> None:
    """With the windows until it was written last, and a note; a page is made of it later."""
    done = run(tmp_path, "killed", 4, "--windows", "0")

    report = Report.load(tmp_path / "out" / "report.json")
    assert done.returncode == -signal.SIGKILL, done
    assert report.windows
    assert "had not ended" in report.notes[-1]
    assert CliRunner().invoke(app, ["report", str(tmp_path / "out")]).exit_code == 0
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("way", ["SIGHUP", "full", "folder"])
def test_a_sweep_restores_what_ran_before(tmp_path: Path, way: str) -> None:
    """Also if what it measured cannot be stored or shown."""
    code = RUN.replace('"run", "sim://mlp", "--slo", "p95=30ms", "--out", str(folder / "out")', "*SWEEP")
    assert code != RUN
    out = tmp_path / "out" / "sweep.json"
    sweep = ["sweep", "sim://mlp", "--rate", "150", "--grid", "max_batch_size=1,4,8", "--out", str(out)]
    command = [sys.executable, "-c", f"SWEEP = {sweep}\n{code}", str(tmp_path), way, "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert FileServer(tmp_path / "server").current() == configuration(), done
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(tmp_path: Path, closed: str) -> None:
    """What was asked for is done; without a standard output it was done, too, and then came a traceback."""
    command = f'exec "$0" -m tuner workload show constant --json out.json {closed}'

    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text())["windows"] == 300


def test_ctrl_c_in_a_command_says_that_it_stopped(tmp_path: Path) -> None:
    """Exit code 130 and one word; Typer swallowed the word."""
    code = (
        "import os, signal, sys\n"
        "import tuner.cli.workload as module\n"
        "module.check_file = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "import tuner.__main__\n"
        "sys.argv = ['tuner', 'workload', 'show', 'constant']\n"
        "tuner.__main__.main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_a_server_is_stopped_where_nobody_reads_any_more(tmp_path: Path) -> None:
    """Ctrl-C ends what reads, too, as in `tuner serve | tee`; a closed terminal takes no words either."""
    code = (
        "import os, sys\n"
        "from types import SimpleNamespace\n"
        "import tuner.cli.serve as module\n"
        "def stop():\n"
        "    reader, writer = os.pipe()\n"
        "    os.close(reader)\n"
        "    os.dup2(writer, 1)\n"
        "    raise KeyboardInterrupt\n"
        "server = SimpleNamespace(title='Triton', target='x', processes=stop, stop=lambda: None)\n"
        "module.start_server = lambda *_, **__: server\n"
        "import tuner.__main__\n"
        "sys.argv = ['tuner', 'serve']\n"
        "tuner.__main__.main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03])
def test_ctrl_c_while_modules_are_imported(tmp_path: Path, seconds: float) -> None:
    """A first word of the import says when it has begun; there is no traceback, and nothing was done."""
    code = (
        "import sys, threading, time, os, signal\n"
        "import tuner.__main__\n"
        "assert 'typer' not in sys.modules\n"
        "sys.argv = ['tuner', 'simulate', 'missing.yaml']\n"
        "def stop():\n"
        "    while 'typer' not in sys.modules: time.sleep(0.0005)\n"
        f"    time.sleep({seconds})\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=stop, daemon=True).start()\n"
        "tuner.__main__.main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert (done.returncode, done.stderr) == (130, "stopped\n")


STOPPED_EARLY = """
import os, signal, sys

module, way, *sys.argv = sys.argv[1:]


class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), getattr(signal, way))


sys.meta_path.insert(0, Stop())
from tuner.__main__ import main

main()
"""


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    ("command", "module"), [("daemon", "tuner.control.service"), ("dispatch", "tuner.dispatch.process")]
)
def test_what_runs_for_good_ends_well_while_it_starts(command: str, module: str, way: str) -> None:
    """Nothing was begun: a unit that is stopped just then has not failed."""
    line = [sys.executable, "-c", STOPPED_EARLY, module, way, "tuner", command, "none.yaml"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr, done.stdout) == (0, "stopped\n", "")


@pytest.mark.parametrize(
    ("command", "runs"),
    [("daemon", "tuner.control.service.run_daemon"), ("dispatch", "tuner.dispatch.process.run_dispatch")],
)
def test_what_runs_for_good_ends_well_where_nobody_reads_its_log(
    tuner: Say, monkeypatch: pytest.MonkeyPatch, command: str, runs: str
) -> None:
    """It went on without a reader; that its last words cannot be written is no failure."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        monkeypatch.setattr(runs, lambda *_, **__: nobody.write("stopped\n"))

        tuner(command, "none.yaml")
