"""The project's one ``njit``: cached, safe against edits of other files and against foreign types.

numba's cache does not notice that a callee in another file changed and would return old answers. The
cache therefore lives in a folder named by a hash of all kernel sources.

Processes that begin together need the same functions: one of them compiles, the others wait and load.

The index of the cache names the types that a function was compiled for, and a process that cannot import one
of them cannot read the index at all. What is compiled for types that are not ours, such as a policy of
somebody's own, is therefore not stored; and an index that cannot be read is begun again.
"""

from __future__ import annotations

import fcntl
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from threading import current_thread, local, main_thread
from time import sleep
from typing import Any, TextIO, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from platformdirs import user_cache_path

__all__ = ["kernel_digest", "njit", "njit_flat", "njit_inline"]

F = TypeVar("F", bound=Callable[..., Any])
LOCKS = 64
"""Files in the cache that processes lock while they compile. Functions that share a file take turns."""
PATIENCE, PAUSE = 0.5, 0.02
"""How long a process waits for a lock before it says so, and how long between two looks meanwhile, s."""
_compiling = local()
_said: set[str] = set()
"""The reasons for a wait that somebody at a terminal was told."""


def _kernel_files() -> list[Path]:
    root = Path(__file__).parent
    folders = {path.resolve() for path in [root, *root.iterdir()] if path.is_dir()}
    files = {file for folder in folders for file in folder.rglob("*.py")}
    return sorted(file for file in files if b"import njit" in file.read_bytes())


@cache
def kernel_digest() -> str:
    """Return a name for what all kernels do: it changes with any of their sources, and with numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in _kernel_files():
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(  # type: ignore[attr-defined]  # set at run time by numba
    user_cache_path("servetune") / "numba" / kernel_digest()
)


def _foreign(arguments: Iterable[Any]) -> bool:
    """Whether one of numba's types is a NamedTuple from outside this package, or holds one."""
    for kind in arguments:
        module = getattr(getattr(kind, "instance_class", None), "__module__", __package__)
        if module.partition(".")[0] != __package__ or _foreign(getattr(kind, "types", ())):
            return True
    return False


_Untyped: Any = FunctionCache  # numba has no types
_UntypedPlace: Any = CompileResultCacheImpl


class _Place(_UntypedPlace):  # type: ignore[misc]  # what has no types cannot be checked
    """Our folder, and none of the others that numba tries after it: their names lack the hash.

    Where the environment has ``NUMBA_CACHE_LOCATOR_CLASSES``, numba prefers those.
    """

    # The first is what takes the folder; its name is private in older releases.
    _locator_classes = tuple(CompileResultCacheImpl._locator_classes[:1])


class _Cache(_Untyped):  # type: ignore[misc]  # what has no types cannot be checked
    """numba's cache of one function, which others can always read.

    Raises:
        RuntimeError: The folder cannot be written.
    """

    _impl_class = _Place

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # unpickling what is damaged, or unknown here, may raise anything
            with suppress(OSError):  # a full disk
                self.flush()
        if found is None:
            _say_why_it_takes_long("compiling what this needs: once for each version, up to a minute")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        if _foreign(getattr(sig, "args", sig)):  # a signature, or the types alone
            return
        # While two processes compile the same functions, numba may lack the object code of what it has just
        # compiled; the disk may be full; and an index that could not be begun again is read here once more.
        # The function works; the next process that compiles it stores it.
        with suppress(Exception):
            super().save_overload(sig, data)


def _say_why_it_takes_long(reason: str) -> None:
    """Tell a person who waits at a terminal that functions are compiled; each reason once in a process.

    A server compiles in another thread, and says so itself. Workers would all say the same, across the bar of
    the command that began them.
    """
    if reason in _said or current_thread() is not main_thread() or parent_process() is not None:
        return
    with suppress(OSError, ValueError):  # a terminal that has gone
        if sys.stderr is not None and sys.stderr.isatty():
            print(reason, file=sys.stderr)
            _said.add(reason)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold the lock of what has a name against all processes; without a folder to write in, hold nothing.

    What is compiled meanwhile for its sake needs no lock: who waits holds none, so nobody waits for ever.
    """
    number = hashlib.sha256(name.encode()).digest()[0] % LOCKS
    folder = Path(numba.config.CACHE_DIR)  # type: ignore[attr-defined]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{number:02}.lock").open("w")
    except OSError:
        yield
        return
    with file:
        with suppress(OSError):  # a file system without locks
            _take(file)
        _compiling.now = True
        try:
            yield
        finally:
            _compiling.now = False


def _take(file: TextIO) -> None:
    """Wait for the lock, and say so where it is not free soon: to load takes a moment, to compile long.

    Raises:
        OSError: The file system has no locks.
    """
    for _ in range(round(PATIENCE / PAUSE)):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sleep(PAUSE)
    _say_why_it_takes_long("waiting for what else is being compiled, up to a minute")
    fcntl.flock(file, fcntl.LOCK_EX)


def _compiled(function: F, **options: Any) -> F:
    made: F = numba.njit(nogil=True, **options)(function)
    if hasattr(made, "enable_caching"):  # compilation is not switched off
        cached: Any = made
        with suppress(RuntimeError):  # without a folder to write in, every process compiles for itself
            cached._cache = _Cache(function)  # what `enable_caching` does, with a cache of ours
        cached.compile = _in_turn(cached)
    return made


def _in_turn(made: Any) -> Callable[[Any], Any]:
    """Return a function's ``compile``, which waits while another process compiles the same."""
    compiled = made.compile

    def compile_in_turn(signature: Any) -> Any:
        # A scheduler asks at every restart for what is compiled already. Our lock would add 0.7 ms to 1.2 ms;
        # with numba's it would wait until another thread has compiled another policy, which takes seconds.
        known = made.overloads.get(getattr(signature, "args", signature))
        if known is not None:
            return known.entry_point
        if getattr(_compiling, "now", False):
            return compiled(signature)
        with _locked(f"{made.py_func.__module__}.{made.py_func.__qualname__}{signature}"):
            return compiled(signature)

    return compile_in_turn


def njit(function: F) -> F:
    """Compile a function to machine code, without Python objects, cached on disk."""
    return _compiled(function)


def njit_flat(function: F) -> F:
    """Compile like :func:`njit` a function that allocates no arrays, nor calls one that does.

    Without reference counting: counting every array of a state tuple at every call of a small function
    cost the dynamic batcher 730 ns per request instead of 190.
    """
    return _compiled(function, _nrt=False)


def njit_inline(function: F) -> F:
    """Compile like :func:`njit_flat` a function that its compiled callers always take in.

    For those on the path of every request: a state tuple is a hundred words, and a call copies them. Not for
    large functions with many callers, which would all grow.
    """
    return _compiled(function, _nrt=False, forceinline=True)
