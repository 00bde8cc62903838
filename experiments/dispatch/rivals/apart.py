"""Runs the measurement of a server in namespaces of its own, where nothing is heard or left outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import NamedTuple

from tuner.errors import AdapterError
from tuner.experiments.dispatch.rivals.catalogue import SYSTEMS
from tuner.experiments.dispatch.rivals.environment import python_of

__all__ = ["CoreRate", "measured"]

LONGEST = 600.0
"""s that a measurement may take."""
APART = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


class CoreRate(NamedTuple):
    """How fast a server is."""

    rate: float
    """Requests per second of the time that all its processes are on a core."""
    latency: float
    """Median of all callers at once, s."""


def measured(name: str, requests: int) -> CoreRate:
    """Measure a server of the catalogue.

    Args:
        name: Its key there.
        requests: How many it is asked.

    Raises:
        AdapterError: It cannot be installed, or does not answer; the message says why.
        StorageError: The cache folder cannot be written.
    """
    if shutil.which(APART[0]) is None:
        raise AdapterError(f"{name} is measured in namespaces of its own; install {APART[0]} (util-linux)")
    module = "tuner.experiments.dispatch.rivals.measure"
    command = [*APART, sys.executable, "-m", module, name, str(python_of(name, SYSTEMS[name])), str(requests)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired as error:
        raise AdapterError(f"{name} was not measured within {LONGEST:g} s") from error
    if ended.returncode:
        raise AdapterError(f"{name}: {ended.stderr.strip().splitlines()[-1:] or ended.returncode}")
    return CoreRate(**json.loads(ended.stdout.splitlines()[-1]))
