"""Runs the measurement of a server in namespaces of its own, where nothing is heard or left outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tuner.errors import AdapterError
from tuner.experiments.dispatch.rivals.catalogue import SYSTEMS
from tuner.experiments.frame.virtualenv import virtualenv_of

__all__ = ["RequestCost", "measured"]

LONGEST = 600.0
"""s that a measurement may take."""
APART = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


class RequestCost(NamedTuple):
    """What a server needs for a request."""

    busy: float
    """Time that all its processes are on a core, per request, s."""
    took: float
    """Time from one answer to the next, s."""
    idle: float
    """Cores that all its processes use while nobody asks anything."""
    latency: float
    """Median of the latency under a light load, s."""

    @property
    def rate(self) -> float:
        """Requests per second of the time on a core that they cost.

        What the server uses without any request is left out: it would count for more on a machine that is
        busy with other things, where the same requests take longer.
        """
        return 1 / (self.busy - self.idle * self.took)


def measured(name: str, requests: int, seconds: float) -> RequestCost:
    """Measure a server of the catalogue.

    Args:
        name: Its key there.
        requests: How many it is asked at full load.
        seconds: How long it is asked under a light load.

    Raises:
        AdapterError: It cannot be installed, or does not answer; the message says why.
        StorageError: The cache folder cannot be written.
    """
    if shutil.which(APART[0]) is None:
        raise AdapterError(f"{name} is measured in namespaces of its own; install {APART[0]} (util-linux)")
    module = "tuner.experiments.dispatch.rivals.measure"
    packages = SYSTEMS[name].requirements
    python = virtualenv_of(name, packages) / "bin" / "python" if packages else Path(sys.executable)
    command = [*APART, sys.executable, "-m", module, name, str(python), str(requests), str(seconds)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired as error:
        raise AdapterError(f"{name} was not measured within {LONGEST:g} s") from error
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
        raise AdapterError(f"{name}: {said[-1]}")
    return RequestCost(**json.loads(ended.stdout.splitlines()[-1]))
