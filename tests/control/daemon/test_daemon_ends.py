"""How a daemon ends: killed in the middle of a change, or by a signal; and what its next life makes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import FileServer
from tests.waiting import LONGEST

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.control.daemon.daemon_bed import Bed
from tuner.control.daemon import worker as worker_module
from tuner.control.store.store import Store
from tuner.profiler import attachment as attachment_module

bed = Bed(Path(sys.argv[1]))
changes = 0


def kill():
    global changes
    changes += 1
    if changes == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)


def connect(target, grids=None):
    server = bed.connect(target, grids)
    setattr(server, sys.argv[2], kill)
    return server

if sys.argv[2] == "written":
    changed = Store.changed
    Store.changed = lambda *arguments, **others: [changed(*arguments, **others), kill()]

attachment_module.connect = worker_module.connect = connect
bed.run(windows=100)
"""


def killed(bed: Bed, point: str, number: int) -> dict[str, Any]:
    """Let a daemon run until it is killed at a point; return its last decision."""
    command = [sys.executable, "-c", KILLED, str(bed.folder), point, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return bed.rows("SELECT * FROM decision ORDER BY id")[-1]


@pytest.mark.parametrize(
    ("point", "number"), [("before_change", 1), ("after_change", 1), ("after_change", 3)]
)
def test_killed_in_the_middle_of_a_change(bed: Bed, point: str, number: int) -> None:
    """The next life finds what the server really runs, and goes on or rolls back; nothing stays in doubt."""
    bed.write(("a", "apply", ""))
    left = killed(bed, point, number)
    assert left["outcome"] == "applying"

    bed.run(windows=1)

    outcome = bed.rows("SELECT * FROM decision WHERE id = ?", left["id"])[0]
    assert outcome["outcome"] == ("applied" if point == "after_change" else "interrupted")
    assert bed.rows("SELECT * FROM decision WHERE outcome = 'applying'") == []
    assert any("killed in the middle" in sentence for sentence in bed.said)
    assert not any(word in sentence for sentence in bed.said for word in ("somebody else", "after all"))

    bed.run(windows=30)
    assert FileServer(bed.folder / "a").latency(bed.running()) <= 0.030


@pytest.mark.parametrize("point", ["before_change", "after_change"])
def test_killed_in_a_change_and_started_a_month_later(bed: Bed, point: str) -> None:
    """The clock is set forward, or the machine was off: what was under way is resolved all the same."""
    bed.write(("a", "apply", ""))
    left = killed(bed, point, 1)

    bed.now = lambda: time.time() + 31 * 86400
    bed.run(windows=1)

    outcome = bed.rows("SELECT outcome FROM decision WHERE id = ?", left["id"])[0]["outcome"]
    assert outcome == ("applied" if point == "after_change" else "interrupted")
    assert any("killed in the middle" in sentence for sentence in bed.said)
    assert not any("somebody else" in sentence for sentence in bed.said)


def test_killed_before_a_change_was_judged(bed: Bed) -> None:
    """The next life puts it on probation again, once."""
    bed.write(("a", "apply", ""))
    left = killed(bed, "written", 1)
    assert (left["outcome"], left["observed"]) == ("applied", None)

    bed.run(windows=1)
    bed.run(windows=1)

    assert len([sentence for sentence in bed.said if "it is on probation again" in sentence]) == 1
    assert bed.rows("SELECT observed FROM decision WHERE id = ?", left["id"])[0]["observed"] is not None


DAEMON = """
import sys
from pathlib import Path
from tests.control.daemon.daemon_bed import Bed
from tuner.control.daemon import worker as worker_module
from tuner.profiler import attachment as attachment_module
from tuner.cli import main

attachment_module.connect = worker_module.connect = Bed(Path(sys.argv[1]).parent).connect
sys.argv = ["tuner", "daemon", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_signals(bed: Bed, ending: signal.Signals) -> None:
    """SIGHUP reads the file again; SIGTERM and Ctrl-C end in good order, with exit code 0."""
    bed.write(("a", "observe", ""))
    command = [sys.executable, "-u", "-c", DAEMON, str(bed.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        told = []
        for line in process.stdout:
            told.append(line)
            if "a: observe, it runs" in line:
                bed.write(("a", "observe", ""), ("b", "observe", ""))
                process.send_signal(signal.SIGHUP)
            if "b: observe, it runs" in line:
                process.send_signal(ending)
        code = process.wait(LONGEST)

    assert code == 0, told
    assert "stopped" in told[-1]
    assert not any("Traceback" in line for line in told)


@pytest.mark.parametrize(
    ("moment", "wanted"), [("importing", ["it runs"]), ("reading", ["it runs", "the file was reloaded"])]
)
def test_a_hang_up_before_the_daemon_runs(bed: Bed, moment: str, wanted: list[str]) -> None:
    """It does not kill, and it is not lost: the file is read afterwards, or again."""
    bed.write(("a", "observe", ""))
    command = [sys.executable, "-u", "-c", EARLY, str(bed.path), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = ""
        for line in process.stdout:
            said += line
            if wanted and all(words in said for words in wanted):
                wanted = []
                process.send_signal(signal.SIGTERM)
        code = process.wait(LONGEST)

    assert code == 0, said
    assert ("the file was reloaded" in said) == (moment == "reading")


EARLY = """
import os, signal, sys
from pathlib import Path

path, moment = Path(sys.argv[1]), sys.argv[2]
sys.argv = ["tuner", "daemon", str(path)]
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import tuner.__main__

if moment == "importing":
    os.kill(os.getpid(), signal.SIGHUP)
from tests.control.daemon.daemon_bed import Bed
from tuner.control.daemon import daemon as daemon_module, worker as worker_module
from tuner.profiler import attachment as attachment_module

attachment_module.connect = worker_module.connect = Bed(path.parent).connect
load = daemon_module.load_yaml


def interrupted(*arguments, **others):
    daemon_module.load_yaml = load
    config = load(*arguments, **others)
    os.kill(os.getpid(), signal.SIGHUP)
    return config


if moment == "reading":
    daemon_module.load_yaml = interrupted
tuner.__main__.main()
"""
