"""The flags of ``tensorflow_model_server`` that the stand-in has, with the same names and defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tuner.adapters.tfserving.batching import parse_batching

__all__ = ["StandinFlags", "common_batching", "parse_flags"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StandinFlags:
    """How the server is started."""

    port: int = 8500
    rest_api_port: int = 0
    grpc_max_threads: int = 4 * (os.cpu_count() or 1)
    model_name: str = "default"
    model_base_path: str = ""
    model_config_file: str = ""
    model_config_file_poll_wait_seconds: float = 0.0
    file_system_poll_wait_seconds: float = 1.0
    enable_batching: bool = False
    enable_per_model_batching_parameters: bool = False
    batching_parameters_file: str = ""
    monitoring_config_file: str = ""
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000


def parse_flags(arguments: Sequence[str]) -> StandinFlags:
    """Read a command line; flags are written ``--name=value`` or, for switches, ``--name``."""
    parser = argparse.ArgumentParser(prog="standin", allow_abbrev=False)
    for field in fields(StandinFlags):
        kind: Any = {"int": int, "float": float, "bool": _switch}.get(str(field.type), str)
        more: dict[str, Any] = {"nargs": "?", "const": True} if kind is _switch else {}
        parser.add_argument(f"--{field.name}", type=kind, default=field.default, **more)
    options = StandinFlags(**vars(parser.parse_args(arguments)))
    if bool(options.model_base_path) == bool(options.model_config_file):
        parser.error("give --model_base_path or --model_config_file")
    if options.batching_parameters_file and not options.enable_batching:
        parser.error("--batching_parameters_file is set without setting --enable_batching to true")
    return options


def common_batching(file: str) -> Any:
    """Return the parameters of ``--batching_parameters_file``, None without it.

    Raises:
        ValueError: The server does not start with them.
    """
    if not file:
        return None
    batching = parse_batching(Path(file).read_text(), file)
    # TensorFlow Serving takes a field that is set as it is; only an absent one means a thread for each core.
    if batching.HasField("num_batch_threads") and batching.num_batch_threads.value < 1:
        raise ValueError(f"num_batch_threads must be positive; was {batching.num_batch_threads.value}")
    return batching


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
