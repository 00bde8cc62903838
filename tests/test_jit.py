"""The cache of compiled functions: whoever comes later can read it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import FunctionCache, IndexDataCacheFile

from tests.kernels import COMPILED, ROOT, folders_of_tests, packages
from tuner import _jit

compiled = pytest.mark.skipif(not COMPILED, reason="nothing is compiled")

OURS = """
from tuner.scheduling.cluster import ClusterSpec, SessionSpec, build_cluster
from tuner.scheduling.requests import waiting
import numpy as np

session = SessionSpec(name="a", slo=1.0, latency=np.array([[0.0, 0.1]]))
cluster = build_cluster(ClusterSpec(sessions=[session], kinds=[0]))
"""
KIND = """
from typing import NamedTuple
import numpy as np

class Mine(NamedTuple):
    queues: np.ndarray
"""
THEIRS = OURS + "import theirs\nprint(waiting(theirs.Mine(cluster.queues), 0))"
OWN = OURS + "print(waiting(cluster, 0), sum(waiting.stats.cache_hits.values()))"


AT_A_TERMINAL = """
import io, sys

class Terminal(io.StringIO):
    def isatty(self):
        return True

sys.stderr = Terminal()
"""

ANOTHER_COMPILES = """
import fcntl, pathlib
from tuner import _jit

folder = pathlib.Path(_jit.numba.config.CACHE_DIR)
folder.mkdir(parents=True)
locks = [(folder / f"{number:02}.lock").open("w") for number in range(_jit.LOCKS)]
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)

class Reader(Terminal):
    def write(self, text):
        for lock in locks:
            lock.close()
        return super().write(text)

sys.stderr = Reader()
"""

TWICE = """
from tuner._jit import njit

@njit
def twice(value):
    return 2 * value
"""

TOLD = """
def told(value):
    twice(value)
    return sys.stderr.getvalue()
"""

OLDER = """
import numba.core.caching as caching
public = vars(caching).pop("UserProvidedCacheLocator", None)
import tuner._jit
caching.UserProvidedCacheLocator = public
"""


def run(code: str, folder: Path, *, cache: str | None = None) -> str:
    """Run code with a cache of its own; return what it prints."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache or str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(folder)!r})\n{code}"],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@compiled
def test_whoever_comes_later_can_read_the_cache(tmp_path: Path) -> None:
    """A function compiled for somebody's own tuple is not stored, and a damaged index is begun again."""
    (tmp_path / "theirs.py").write_text(KIND)
    assert run(THEIRS, tmp_path) == "0"
    (tmp_path / "theirs.py").unlink()
    assert run(OWN, tmp_path) == "0 0"  # compiled: the index, if there is one, names no foreign type
    for index in (tmp_path / "cache").rglob("*.nbi"):
        index.write_bytes(b"garbage")

    assert run(OWN, tmp_path) == "0 0"
    assert run(OWN, tmp_path) == "0 1"


@compiled
def test_who_waits_at_a_terminal_is_told_once_why(tmp_path: Path) -> None:
    """Nobody is where the functions are in the cache already."""
    (tmp_path / "mine.py").write_text(TWICE)
    code = AT_A_TERMINAL + "from mine import twice\ntwice(3), twice(3.0)\nprint(sys.stderr.getvalue())"

    assert run(code, tmp_path) == "compiling what this needs: once for each version, up to a minute"
    assert run(code, tmp_path) == ""


@compiled
def test_a_thread_that_waits_silences_nobody_who_is_at_the_terminal(tmp_path: Path) -> None:
    """It says nothing, and what the main thread then waits for is said."""
    (tmp_path / "mine.py").write_text(TWICE)
    code = AT_A_TERMINAL + "import threading\nfrom mine import twice\n"
    code += "thread = threading.Thread(target=twice, args=(3,))\nthread.start()\nthread.join()\n"
    code += "print('before:', sys.stderr.getvalue())\ntwice(3.0)\nprint('after:', sys.stderr.getvalue())"

    assert run(code, tmp_path).splitlines() == [
        "before: ",
        "after: compiling what this needs: once for each version, up to a minute",
    ]


@compiled
def test_workers_say_nothing_at_the_terminal_of_their_parent(tmp_path: Path) -> None:
    """Each would say the same, across the parent's progress bar."""
    (tmp_path / "mine.py").write_text(AT_A_TERMINAL + TWICE + TOLD)
    code = "import multiprocessing\nfrom mine import told\n"
    code += "with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
    code += "    print(repr(pool.apply(told, (3,))))"

    assert run(code, tmp_path) == "''"


@compiled
def test_who_waits_for_another_process_that_compiles_is_told_so(tmp_path: Path) -> None:
    """The other one has the locks until the message comes; nothing is stored then, so this one compiles."""
    (tmp_path / "mine.py").write_text(TWICE)
    code = AT_A_TERMINAL + ANOTHER_COMPILES + "from mine import twice\ntwice(3)\nprint(sys.stderr.getvalue())"

    assert run(code, tmp_path).splitlines() == [
        "waiting for what else is being compiled, up to a minute",
        "compiling what this needs: once for each version, up to a minute",
    ]


@compiled
def test_without_a_folder_to_write_in_nothing_is_stored(tmp_path: Path) -> None:
    """Nor beside the source, where the next process would not notice that another file has changed."""
    (tmp_path / "mine.py").write_text(TWICE)

    assert run("from mine import twice\nprint(twice(3))", tmp_path, cache="/dev/null/x") == "6"

    assert [*tmp_path.rglob("*.nb[ci]")] == []


@compiled
def test_what_is_compiled_is_stored_in_our_folder_whatever_numba_calls_it(tmp_path: Path) -> None:
    """The class was private in numba 0.61; in all releases it is the first that numba tries."""
    (tmp_path / "mine.py").write_text(TWICE)

    assert run(OLDER + "from mine import twice\nprint(twice(3))", tmp_path) == "6"

    stored = [*tmp_path.rglob("*.nbi")]
    assert stored == [*(tmp_path / "cache/servetune/numba").rglob("*.nbi")] != []


def test_every_package_with_compiled_functions_has_tests() -> None:
    """They lie in the folder that mirrors it, and also run without compilation."""
    assert {Path("tuner/cluster"), Path("tuner/scheduling"), Path("agents/rrl/table")} <= packages()
    assert [folder for folder in folders_of_tests() if not any(folder.glob("test_*.py"))] == []


def test_functions_are_compiled_by_our_decorators_only() -> None:
    """Others would not be found by those who look for compiled functions."""
    folders = [ROOT / name for name in ("tuner", "adapters", "agents", "envs", "experiments", "profiler")]
    files = {file for folder in folders for file in folder.rglob("*.py")}

    users = {
        file.name for file in files if re.search(r"numba\.n?jit|from numba import .*jit", file.read_text())
    }

    assert users == {"_jit.py"}


@compiled
@pytest.mark.parametrize(
    "error", [RuntimeError("no compiled object yet"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_what_cannot_be_stored_is_used_all_the_same(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba may lack the object code while another process compiles the same function; a disk may be full."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(FunctionCache, "save_overload", fails)

    @_jit.njit
    def twice(value: float) -> float:
        return 2.0 * value

    assert twice(3.0) == 6.0


@compiled
def test_a_damaged_index_on_a_full_disk_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be begun again; the function is compiled."""

    def unreadable(*_: object) -> None:
        raise EOFError

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_load_index", unreadable)
    monkeypatch.setattr(IndexDataCacheFile, "_save_index", full)

    @_jit.njit
    def thrice(value: float) -> float:
        return 3.0 * value

    assert thrice(3.0) == 9.0
