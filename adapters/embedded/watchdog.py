"""Runs the server for as long as its parent lives, and leaves nothing behind whatever happens.

It is started as a script in a process group of its own, so that Ctrl-C in a terminal reaches the parent only.
Its standard input is a pipe that the parent holds open. When the parent closes it or dies, the watchdog ends
the server and its children and removes the server's shared memory; if the parent is gone, it removes the
folder of the run, too. If the watchdog itself is killed, the kernel ends the server.

It uses the standard library alone and imports nothing of this package, to start fast and stay small.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

POLL = 0.2
"""How often the watchdog looks whether the server and the parent still run, s."""
GRACE = 5.0
"""How long the server may take to end by itself, s."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SHARED_MEMORY = Path("/dev/shm")
SCRATCH = Path("/tmp")  # fixed in the Python backend, whatever TMPDIR says
SCRATCH_AGE = 60.0
"""The server makes its scratch folder within this time after its start, s."""


def main(arguments: list[str]) -> int:
    """Run ``PARENT_PID SHARED_MEMORY_PREFIX FOLDER LOG COMMAND...`` and return the server's exit code."""
    parent, prefix, folder, log, *command = arguments
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the server become ours, to wait for
    begun, others = time.time(), _scratch()
    with open(log, "ab") as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  this process has one thread
        )
    try:
        print(server.pid, flush=True)
        _watch(server, int(parent))
    except (SystemExit, OSError):
        pass  # the parent wants us to end, or is gone and does not read what we print
    finally:
        _end(server)
        for file in SHARED_MEMORY.glob(f"{prefix}*"):
            file.unlink(missing_ok=True)
        _remove_scratch(_scratch() - others, begun + SCRATCH_AGE)
        if os.getppid() != int(parent):
            shutil.rmtree(folder, ignore_errors=True)
    return server.returncode


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _watch(server: subprocess.Popen[bytes], parent: int) -> None:
    """Return when the server has ended or the parent wants it to (nothing is ever written to the pipe)."""
    # A process forked by the parent may hold the pipe open after its death, so we also ask who our parent is.
    while server.poll() is None and os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], POLL)
        if readable:
            return


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and everything in its process group, gently first; return once all are gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-server.pid, 0)


def _scratch() -> set[Path]:
    return set(SCRATCH.glob("python_env_*"))


def _remove_scratch(folders: set[Path], latest: float) -> None:
    """Remove the empty folders that a killed server leaves; one of another server would be no loss."""
    for folder in folders:
        with contextlib.suppress(OSError):  # gone, somebody else's, or in use
            if folder.stat().st_ctime <= latest:
                folder.rmdir()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
