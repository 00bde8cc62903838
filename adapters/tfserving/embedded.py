"""A TensorFlow Serving on this machine, for the demo, for tests and for trying things out.

It is the real ``tensorflow_model_server`` if one is on the PATH, else a stand-in that takes the same flags.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from google.protobuf import text_format

from tuner.adapters.embedded.cache import Progress, built_folder, silent
from tuner.adapters.embedded.server import HOST, START_TIMEOUT, EmbeddedServer
from tuner.adapters.tfserving.download import python_path, require_platform
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.target import METRICS_PATH
from tuner.errors import AdapterError, InvalidInput

__all__ = ["EmbeddedTFServing", "TFServingOptions", "TFServingPorts"]

BINARY = "tensorflow_model_server"
MODELS = ("cnn", "mlp")
BUILD_TIMEOUT = 300.0


class TFServingPorts(NamedTuple):
    """Where the server listens."""

    grpc: int
    rest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TFServingOptions:
    """How the embedded server is started."""

    per_model: bool = True
    """Give each version batching parameters of its own (``--enable_per_model_batching_parameters``)."""
    metrics: bool = True
    """Export metrics (``--monitoring_config_file``)."""
    labels: Mapping[str, int] | None = None
    """Version labels, by a model configuration file that names the versions; None for none."""
    threads: int = 64
    """Requests in work at a time (``--grpc_max_threads``); no batch of one-row requests is larger."""
    batch_threads: int = 2
    """Batches executed at a time (``num_batch_threads``)."""
    inter_op: int = 2
    intra_op: int = 1

    def flags(self, folder: Path, model: str) -> list[str]:
        """Return the server's own flags for this.

        Args:
            folder: Where its files are.
            model: The model's name.
        """
        flags = [
            f"--grpc_max_threads={self.threads}",
            f"--tensorflow_inter_op_parallelism={self.inter_op}",
            f"--tensorflow_intra_op_parallelism={self.intra_op}",
            "--file_system_poll_wait_seconds=1",
            "--max_num_load_retries=0",
            "--enable_batching=true",
            f"--batching_parameters_file={folder / 'batching.pbtxt'}",
        ]
        if self.per_model:
            flags.append("--enable_per_model_batching_parameters=true")
        if self.metrics:
            flags.append(f"--monitoring_config_file={folder / 'monitoring.pbtxt'}")
        if self.labels is not None:
            return [*flags, f"--model_config_file={folder / 'models.pbtxt'}"]
        return [*flags, f"--model_name={model}", f"--model_base_path={folder / 'models' / model}"]

    def write(self, folder: Path, model: str) -> None:
        """Write the files that the flags name."""
        batching = message("BatchingParameters")()
        batching.num_batch_threads.value = self.batch_threads
        monitoring = message("MonitoringConfig")()
        monitoring.prometheus_config.enable = True
        monitoring.prometheus_config.path = METRICS_PATH
        models = message("ModelServerConfig")()
        entry = models.model_config_list.config.add(
            name=model, base_path=str(folder / "models" / model), model_platform="tensorflow"
        )
        entry.version_labels.update(self.labels or {})
        entry.model_version_policy.specific.versions.extend(sorted(set((self.labels or {}).values())))
        files = {"batching": batching, "monitoring": monitoring, "models": models}
        for name, content in files.items():
            (folder / f"{name}.pbtxt").write_text(text_format.MessageToString(content))


class EmbeddedTFServing(EmbeddedServer):
    """A TensorFlow Serving that lives as long as this object is open; see :class:`EmbeddedServer`.

    Args:
        model: The model to serve: ``mlp`` or ``cnn``.
        options: How the server is started.
        progress: Called with what takes long.
        start_timeout: How long the server may take to become ready, s.

    Raises:
        UnsupportedPlatform: TensorFlow cannot run here.
        InvalidInput: The model is unknown.
    """

    title = "TensorFlow Serving"
    services = len(TFServingPorts._fields)

    def __init__(
        self,
        model: str = "mlp",
        *,
        options: TFServingOptions | None = None,
        progress: Progress = silent,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        require_platform()
        if model not in MODELS:
            raise InvalidInput("embedded model", f"'{model}' is unknown", f"use one of {', '.join(MODELS)}")
        super().__init__(model, progress=progress, start_timeout=start_timeout)
        self.options = options or TFServingOptions()

    @property
    def ports(self) -> TFServingPorts:
        """Where the server listens."""
        return TFServingPorts(*self.numbers)

    @property
    def base_path(self) -> Path:
        """The model's folder with its versions."""
        return self.folder / "models" / self.model

    @property
    def target(self) -> str:
        """The URL to connect to."""
        target = f"tfserving://{HOST}:{self.ports.grpc}/{self.model}?rest={self.ports.rest}"
        target += f"&base_path={self.base_path}"
        if self.options.labels is not None:
            target += f"&config={self.folder / 'models.pbtxt'}"
        return target

    def _prepare(self, folder: Path) -> None:
        base = folder / "models" / self.model
        base.mkdir(parents=True)
        network = _network(self.model, self._progress)
        for number in sorted({1, *(self.options.labels or {}).values()}):
            shutil.copytree(network, base / str(number), copy_function=shutil.copy)
        self.options.write(folder, self.model)

    def _command(self, folder: Path, prefix: str) -> list[str]:  # noqa: ARG002
        binary = shutil.which(BINARY)
        program = [binary] if binary else [sys.executable, "-m", "tuner.adapters.tfserving.standin"]
        ports = [f"--port={self.ports.grpc}", f"--rest_api_port={self.ports.rest}"]
        return [*program, *ports, *self.options.flags(folder, self.model)]

    def _environment(self) -> Mapping[str, str]:
        return _variables(self._progress)

    def _is_serving(self) -> bool:
        return self._answers(self.ports.rest, f"/v1/models/{self.model}")


def _variables(progress: Progress) -> dict[str, str]:
    return {
        "PYTHONPATH": python_path(progress),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _network(model: str, progress: Progress) -> Path:
    """Return the folder of a network."""
    builder = (resources.files("tuner.adapters.tfserving.standin") / "networks.py").read_bytes()

    def fill(folder: Path) -> None:
        progress(f"building the model {model} (once)")
        module = "tuner.adapters.tfserving.standin.networks"
        done = subprocess.run(
            [sys.executable, "-m", module, model, str(folder)],
            env={**os.environ, **_variables(progress)},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise AdapterError(f"the model {model} cannot be built: {done.stderr.strip().splitlines()[-1:]}")

    return built_folder(f"savedmodel-{model}", builder, fill)
