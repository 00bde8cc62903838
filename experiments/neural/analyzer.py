"""Runs Triton's Model Analyzer, in an environment of its own, on an embedded server.

Model Analyzer loads one configuration after the other and measures each with its own load generator,
perf_analyzer. Here it measures under our load: the same rate, Poisson arrivals. It minimises the p95 over our
grid, in windows as long as ours. Two of its defaults are changed in its favour. perf_analyzer accepts a
measurement although its parts differ: by default it repeats one until three parts differ by less than 10 %,
which under Poisson load they seldom do. And the three best configurations are not measured again under other
loads, which would serve its report alone.

Quick mode climbs from one instance and batches of one over powers of two; it never sets a delay. Optuna mode
draws from the grid that it is given, delays included. Both begin with the configuration that the server has.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import model_config_pb2

from tuner.adapters.embedded.server import HOST
from tuner.adapters.triton.configuration import DELAY, INSTANCES, MAX_BATCH_SIZE, read_configuration
from tuner.adapters.triton.embedded import EmbeddedTriton
from tuner.adapters.triton.embedded.download import fetch_triton
from tuner.errors import AdapterError
from tuner.experiments.frame.virtualenv import virtualenv_of
from tuner.experiments.live.testbed import GRIDS
from tuner.experiments.neural.bench import Bench
from tuner.knobs import Configuration

__all__ = [
    "MODES",
    "Effort",
    "NoResult",
    "SearchResult",
    "analyze",
    "fetch_analyzer",
    "run_to_end",
    "search_result",
    "settings_of",
]

REQUIREMENTS = ("triton-model-analyzer==1.58.0", "tritonclient[all]==2.51.0")
"""tritonclient brings the last perf_analyzer that runs here; PyPI's package of that name is empty."""
MODES = ("quick", "optuna")
MAIN = "from model_analyzer.entrypoint import main; main()"
LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}
"""What perf_analyzer is linked with -> its file among the libraries of the embedded Triton."""
WINDOWS = 3
"""That perf_analyzer takes for one measurement at least."""
ANY = 1000
"""By how many per cent the windows of a measurement may differ."""
LONGEST = 300.0
"""s that a search may take."""
BEGINS = "Profiling {model}_config"
"""How the line of its log goes with which each measurement begins."""


class NoResult(Exception):
    """A search came to nothing; the message says why."""


class Effort(NamedTuple):
    """How much a search may try, and how long."""

    window: float
    """Length of a measurement, s."""
    trials: int
    """Most configurations that optuna mode may draw."""
    grids: Mapping[str, tuple[float, ...]] = GRIDS
    """Where it searches."""


class SearchResult(NamedTuple):
    """What a search came to."""

    left: Configuration
    """The configuration that it recommends, or left the server with."""
    seconds: float
    measurements: int


def fetch_analyzer() -> Path:
    """Return the folder of its virtual environment, which is made the first time.

    Raises:
        AdapterError: Its packages cannot be installed; the message says why.
        StorageError: The cache folder cannot be written.
    """
    return virtualenv_of("model-analyzer", REQUIREMENTS)


def analyze(mode: str, bench: Bench, effort: Effort) -> SearchResult:
    """Search a model's best configuration on a fresh server.

    Args:
        mode: One of ``MODES``.
        bench: The model and its load.
        effort: How much it may try.

    Raises:
        NoResult: It ended without one.
        AdapterError: The server or the environment was not there.
        StorageError: The cache folder cannot be written.
    """
    environment = fetch_analyzer()
    with EmbeddedTriton(bench.model) as server:
        folder = server.folder / "analyzer"
        folder.mkdir()
        settings = {
            **settings_of(mode, bench, effort),
            **_places(server, folder),
            "perf_analyzer_path": str(environment / "bin" / "perf_analyzer"),
        }
        (folder / "settings.yaml").write_text(json.dumps(settings))  # JSON is YAML
        # Without GPUs it asks the server for no metrics of them, which the embedded one does not export.
        variables = {"LD_LIBRARY_PATH": str(_link_libraries(folder)), "CUDA_VISIBLE_DEVICES": ""}
        command = [str(environment / "bin" / "python"), "-c", MAIN, "profile", "-f", "settings.yaml"]
        began = time.monotonic()
        problem = run_to_end(command, folder, variables, LONGEST)
        seconds = time.monotonic() - began
        if problem and not server.processes():
            raise AdapterError("the server ended under Model Analyzer")
        if problem:
            raise NoResult(problem)
        return search_result(folder, bench.model, seconds)


def settings_of(mode: str, bench: Bench, effort: Effort) -> dict[str, Any]:
    """Return what its configuration file says about the search and its load."""
    grids = {name: list(map(int, effort.grids[name])) for name in (MAX_BATCH_SIZE, INSTANCES)}
    model: dict[str, Any] = {"cpu_only": True, "objectives": ["perf_latency_p95"]}
    if mode == "quick":
        search = {
            "run_config_search_max_instance_count": max(grids[INSTANCES]),
            "run_config_search_max_model_batch_size": max(grids[MAX_BATCH_SIZE]),
        }
    else:
        search = {"optuna_max_trials": effort.trials}
        delays = [round(1e6 * delay) for delay in effort.grids[DELAY]]
        model["parameters"] = {"request_rate": [round(bench.rate)]}  # or it searches over loads, too
        model["model_config_parameters"] = {
            "max_batch_size": grids[MAX_BATCH_SIZE],
            "instance_group": [{"kind": "KIND_CPU", "count": grids[INSTANCES]}],
            "dynamic_batching": {"max_queue_delay_microseconds": delays},
        }
    return {
        **search,
        "run_config_search_mode": mode,
        "concurrency_sweep_disable": True,
        "skip_detailed_reports": True,
        "inference_output_fields": ["model_name", "model_config_path", "perf_latency_p95"],
        "perf_analyzer_flags": {
            "request-rate-range": bench.rate,
            "request-distribution": "poisson",
            "percentile": 95,
            "measurement-mode": "time_windows",
            "measurement-interval": round(1e3 * effort.window / WINDOWS),
            "stability-percentage": ANY,
        },
        "profile_models": {bench.model: model},
    }


def search_result(folder: Path, model: str, seconds: float) -> SearchResult:
    """Return what a search came to, from the files that it left.

    Args:
        folder: Where they are.
        model: The model's name.
        seconds: How long it took.

    Raises:
        NoResult: There is none among them.
    """
    table = folder / "results" / "metrics-model-inference.csv"
    if not table.exists():
        raise NoResult(f"it wrote no table: {_last_line(folder)}")
    with table.open(encoding="utf-8", newline="") as lines:
        best = next(csv.DictReader(lines), {}).get("Model Config Path", "").strip()
    variant = folder / "variants" / best / "config.pbtxt"
    if not best or not variant.exists():
        raise NoResult(f"its table names no configuration: '{best}'")
    message = text_format.Parse(variant.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    config: Mapping[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    return SearchResult(read_configuration(config, GRIDS), seconds, log.count(BEGINS.format(model=model)))


def _places(server: EmbeddedTriton, folder: Path) -> dict[str, Any]:
    """Return what its configuration file says about the server and the files that it writes."""
    return {
        "triton_launch_mode": "remote",
        "client_protocol": "grpc",
        "triton_grpc_endpoint": f"{HOST}:{server.ports.grpc}",
        "triton_http_endpoint": f"{HOST}:{server.ports.http}",
        "triton_metrics_url": f"http://{HOST}:{server.ports.metrics}/metrics",
        "dcgm_disable": True,
        "model_repository": str(server.repository),
        "output_model_repository_path": str(folder / "variants"),
        "checkpoint_directory": str(folder / "checkpoints"),
        "export_path": str(folder),
    }


def run_to_end(command: Sequence[str], folder: Path, variables: Mapping[str, str], longest: float) -> str:
    """Run a command in a folder, with its output in the file ``log`` there.

    Args:
        command: The program and its arguments.
        folder: Where it runs.
        variables: Set in its environment, beside those of this process.
        longest: How long it may take before it is ended with all its children, s.

    Returns:
        What went wrong; nothing if nothing did.
    """
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(longest)
        except subprocess.TimeoutExpired:
            return f"it did not end within {longest:g} s"
        finally:
            _end(process)
    return f"it ended with {code}: {_last_line(folder)}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with perf_analyzer, which runs in a session of its own."""
    if process.poll() is not None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


def _last_line(folder: Path) -> str:
    """Return the last line of its log."""
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "its log is empty")


def _link_libraries(folder: Path) -> Path:
    """Return a folder with the libraries of perf_analyzer, under the names by which it looks for them."""
    place = folder / "libraries"
    place.mkdir()
    source = fetch_triton() / "nvidia_pytriton.libs"
    for name, pattern in LIBRARIES.items():
        found = sorted(source.glob(pattern))
        if not found:
            raise AdapterError(f"the embedded Triton brings no {name}, which perf_analyzer needs")
        (place / name).symlink_to(found[0])
    return place
