"""Assembles the folders that the embedded server reads: its backends and its models."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from tuner.adapters.embedded.cache import Progress, built_folder, cached_folder, silent
from tuner.adapters.triton.embedded.networks import NETWORKS
from tuner.errors import InvalidInput
from tuner.plugin import install_text

__all__ = ["assemble_backends", "make_repository"]


def assemble_backends(server: Path) -> Path:
    """Return a backend folder with the Python backend for the running Python.

    The wheel keeps the stub, the program that runs a model's Python code, outside its backend folder, with
    one for each version of Python.

    Args:
        server: The unpacked wheel.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = server / "pytriton" / "tritonserver"

    def fill(folder: Path) -> None:
        backend = folder / "python"
        shutil.copytree(source / "backends" / "python", backend)
        stub = "triton_python_backend_stub"
        shutil.copy2(source / "python_backend_stubs" / python / stub, backend / stub)

    return cached_folder(f"{server.name}-backends-{python}", fill)


def make_repository(
    folder: Path, models: Iterable[str], progress: Progress = silent, *, gpu: bool = False
) -> None:
    """Fill a folder with models. Their networks are built once, kept in the cache, and linked.

    Args:
        folder: Where; none of the models is there yet.
        models: Their names.
        progress: Called with what takes long.
        gpu: Whether their instances run on GPUs.

    Raises:
        InvalidInput: A model is unknown, or the libraries that build and run it are missing.
        StorageError: The cache folder cannot be written.
    """
    files = resources.files("tuner.adapters.triton.embedded") / "models"
    for model in models:
        if model not in NETWORKS:
            known = ", ".join(sorted(NETWORKS))
            raise InvalidInput("embedded model", f"'{model}' is unknown", f"use one of {known}")
        version = folder / model / "1"
        version.mkdir(parents=True)
        text = (files / f"{model}.pbtxt").read_text()
        (folder / model / "config.pbtxt").write_text(text.replace("KIND_CPU", "KIND_GPU") if gpu else text)
        (version / "model.py").write_text((files / "model.py").read_text())
        (version / "model.onnx").symlink_to(_network(model, progress))


def _network(model: str, progress: Progress) -> Path:
    """Return the file of a network."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        problem = f"{' and '.join(missing)} {verb} not installed"
        raise InvalidInput("embedded server", problem, install_text("demo"))
    builder = (resources.files("tuner.adapters.triton.embedded") / "networks.py").read_bytes()

    def fill(folder: Path) -> None:
        import onnx

        progress(f"building the model {model} (once)")
        onnx.save(NETWORKS[model](), folder / "model.onnx")

    return built_folder(f"model-{model}", builder, fill) / "model.onnx"
