"""Reads the flags that a server on this machine was started with, from its command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tuner.adapters.tfserving.batching import parse_batching
from tuner.errors import AdapterError
from tuner.files.storage import read_file

__all__ = ["NOTICED", "first_seen", "notes_on_flags", "notes_on_unseen", "read_flags", "threads"]

ON = ("true", "1", "t", "yes", "y", "")
PER_MODEL = "enable_per_model_batching_parameters"
BATCHING = "enable_batching"
FILE = "batching_parameters_file"
POLLING = "file_system_poll_wait_seconds"
NOTICED = 60.0
"""Longest wait for the server to list a version, s: by default it looks at the folders each second."""
PROC = Path("/proc")
LARGEST_FILE = 1_000_000
"""Bytes of a file of batching parameters."""


def read_flags(processes: Iterable[int]) -> dict[str, str] | None:
    """Return the flags of the server's process, None if it cannot be seen.

    The file of its batching parameters is named as it is seen from here.

    Args:
        processes: Ids of the processes that listen on its port.
    """
    for pid in processes:
        try:
            words = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        pairs = [word.lstrip("-").partition("=") for word in words[1:] if word.startswith("-")]
        flags = {name: value for name, _, value in pairs}
        if "port" in flags or "model_base_path" in flags or "model_config_file" in flags:
            return flags | ({FILE: _seen(pid, flags[FILE])} if flags.get(FILE) else {})
    return None


def _seen(pid: int, file: str) -> str:
    """Return where a file of a process is seen from here: its root and its working folder may not be ours."""
    about = PROC / str(pid)
    if not about.exists():  # a system without it
        return file
    return f"{about}/root{file}" if file.startswith("/") else f"{about}/cwd/{file}"


def first_seen(processes: Iterable[int]) -> psutil.Process | None:
    """Return the first of these processes that can be seen, None if none can.

    It equals what was returned before if it is the same one. When it was started would not tell: that is
    reckoned from the time of day, which may be set meanwhile.
    """
    for pid in processes:
        try:
            return psutil.Process(pid)
        except psutil.Error:
            continue
    return None


def is_on(flags: Mapping[str, str], name: str) -> bool:
    """Whether a flag is set to true."""
    return name in flags and flags[name].lower() in ON


def notes_on_flags(flags: Mapping[str, str] | None) -> list[str]:
    """Return why versions of ours are not loaded, or not with their own parameters; empty if they are."""
    if flags is None:
        return []
    notes = []
    if missing := " ".join(f"--{name}" for name in (BATCHING, PER_MODEL) if not is_on(flags, name)):
        notes.append(f"the server ignores a version's own batching parameters; start it with {missing}")
    if not _looks(flags.get(POLLING, "")):
        seldom = f"looks for new versions at its start only, or less often than every {NOTICED:g} s"
        notes.append(f"the server {seldom}; start it with --{POLLING}=1")
    return notes


def _looks(text: str) -> bool:
    """Whether a server looks at the folders often enough; with 0 it does so at its start, also for labels."""
    try:
        return 0 < float(text) <= NOTICED
    except ValueError:  # not given, or nothing that it would start with
        return True


def notes_on_unseen(flags: Mapping[str, str] | None) -> list[str]:
    """Return what could not be checked of a server whose process cannot be seen; empty if it can."""
    if flags is not None:
        return []
    needed = f"--{BATCHING} --{PER_MODEL}"
    return [f"changes have an effect only if the server runs with {needed}, which could not be checked"]


def threads(flags: Mapping[str, str]) -> dict[str, float] | None:
    """Return the values of the knobs that only a restart changes; 0 stands for the server's own choice.

    None: the file of its batching parameters cannot be read from here.

    Raises:
        AdapterError: A flag is no number, or its batching parameters make no sense.
    """
    file = flags.get(FILE, "")
    try:
        content = read_file(Path(file), LARGEST_FILE) if file else None
    except OSError:
        return None
    try:
        text = content.decode() if content is not None else None
        batching = parse_batching(text, file)
        return {
            "batch_threads": float(batching.num_batch_threads.value) if batching is not None else 0.0,
            "inter_op": float(flags.get("tensorflow_inter_op_parallelism", "0")),
            "intra_op": float(flags.get("tensorflow_intra_op_parallelism", "0")),
        }
    except ValueError as error:
        raise AdapterError(f"the server's flags cannot be understood: {error}") from error
