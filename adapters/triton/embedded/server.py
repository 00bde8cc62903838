"""Starts a Triton server with its models as a child process, and ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tuner.adapters.embedded.cache import Progress, silent
from tuner.adapters.embedded.server import HOST, START_TIMEOUT, EmbeddedServer
from tuner.adapters.triton.embedded.download import fetch_triton, python_library_folder, require_platform
from tuner.adapters.triton.embedded.repository import assemble_backends, make_repository

__all__ = ["EmbeddedTriton", "TritonOptions", "TritonPorts"]


class TritonPorts(NamedTuple):
    """Where the server listens."""

    grpc: int
    http: int
    metrics: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonOptions:
    """How the embedded server is started."""

    summaries: bool = True
    """Export latency quantiles (``--metrics-config=summary_latencies=true``)."""
    explicit: bool = True
    """Accept configuration changes (``--model-control-mode=explicit``)."""
    poll: int = 0
    """Seconds between two looks for changed files (``--model-control-mode=poll``); 0 never looks."""
    metrics: bool = True
    """Open the metrics port (``--allow-metrics``)."""
    complete_configurations: bool = False
    """Let Triton guess missing parts of model configurations; costs a second per reload."""
    gpu: bool = False
    """Serve the models on the GPUs of this machine, instead of on its processor."""

    def flags(self, models: Sequence[str]) -> list[str]:
        """Return Triton's own flags for this."""
        flags = [f"--allow-metrics={str(self.metrics).lower()}"]
        flags.append(f"--allow-gpu-metrics={str(self.gpu).lower()}")
        if self.poll:
            flags += ["--model-control-mode=poll", f"--repository-poll-secs={self.poll}"]
        elif self.explicit:
            flags += ["--model-control-mode=explicit", *[f"--load-model={model}" for model in models]]
        if self.summaries and self.metrics:
            flags.append("--metrics-config=summary_latencies=true")
        if not self.complete_configurations:
            flags.append("--disable-auto-complete-config")
        return flags


class EmbeddedTriton(EmbeddedServer):
    """A Triton server that lives as long as this object is open; see :class:`EmbeddedServer`.

    Args:
        model: The model that ``target`` names: ``mlp`` or ``cnn``.
        models: All models to serve; only ``model`` if empty.
        options: How the server is started.
        progress: Called with what takes long.
        start_timeout: How long the server may take to become ready, s.

    Raises:
        UnsupportedPlatform: The server's binary cannot run here.
        InvalidInput: A model is unknown.
    """

    title = "Triton"
    services = len(TritonPorts._fields)

    def __init__(
        self,
        model: str = "mlp",
        *,
        models: Sequence[str] = (),
        options: TritonOptions | None = None,
        progress: Progress = silent,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        require_platform()
        super().__init__(model, models=models, progress=progress, start_timeout=start_timeout)
        self.options = options or TritonOptions()

    @property
    def ports(self) -> TritonPorts:
        """Where the server listens."""
        return TritonPorts(*self.numbers)

    @property
    def repository(self) -> Path:
        """The folder of all its models."""
        return self.folder / "models"

    @property
    def target(self) -> str:
        """The URL to connect to."""
        metrics = self.ports.metrics if self.options.metrics else "off"
        return f"triton://{HOST}:{self.ports.grpc}/{self.model}?metrics={metrics}"

    def _prepare(self, folder: Path) -> None:
        assemble_backends(fetch_triton(self._progress))
        make_repository(folder / "models", self.models, self._progress, gpu=self.options.gpu)

    def _command(self, folder: Path, prefix: str) -> list[str]:
        server = fetch_triton(self._progress)
        triton = server / "pytriton" / "tritonserver"
        addresses = [f"--{service}-address={HOST}" for service in TritonPorts._fields]
        ports = [f"--{service}-port={port}" for service, port in self.ports._asdict().items()]
        return [
            str(triton / "bin" / "tritonserver"),
            f"--model-repository={folder}/models",
            f"--backend-directory={assemble_backends(server)}",
            f"--cache-directory={triton / 'caches'}",
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            "--exit-timeout-secs=1",
            *addresses,
            *ports,
            *self.options.flags(self.models),
        ]

    def _environment(self) -> Mapping[str, str]:
        libraries = [
            python_library_folder(),
            str(fetch_triton(self._progress) / "nvidia_pytriton.libs"),
            os.environ.get("LD_LIBRARY_PATH", ""),
        ]
        return {
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
            # The Python backend asks the first python3 on the path where its libraries are.
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "OMP_NUM_THREADS": "1",
            **({} if self.options.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        }

    def _is_serving(self) -> bool:
        return all(self._answers(self.ports.http, f"/v2/models/{model}/ready") for model in self.models)
