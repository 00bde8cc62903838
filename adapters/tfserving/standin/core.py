"""The models of the server: their configuration, their labels, and which version a request is for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.standin.flags import StandinFlags, common_batching
from tuner.adapters.tfserving.standin.manager import Manager
from tuner.adapters.tfserving.standin.metrics import Registry
from tuner.adapters.tfserving.standin.servable import Servable, ServingOptions

__all__ = ["Core", "Rejected"]

UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION = 2, 3, 5, 9
FIRST_LOAD = 120.0


class Rejected(Exception):
    """A request that cannot be served.

    Args:
        code: gRPC's number.
        words: Why.
    """

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class Core:
    """All models of the server.

    Args:
        options: How the server was started.

    Raises:
        ValueError: The server does not start with these options.
    """

    def __init__(self, options: StandinFlags) -> None:
        self.metrics = Registry()
        self._options = options
        self._lock = threading.Lock()
        self._models: dict[str, Manager] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._serving = ServingOptions(
            batching=options.enable_batching,
            per_model=options.enable_per_model_batching_parameters,
            common=common_batching(options.batching_parameters_file),
            intra_op=options.tensorflow_intra_op_parallelism,
            inter_op=options.tensorflow_inter_op_parallelism,
        )
        self.reload(self._first_config())
        if options.model_config_file and options.model_config_file_poll_wait_seconds > 0:
            threading.Thread(target=self._poll_config, daemon=True).start()

    def _first_config(self) -> Any:
        if self._options.model_config_file:
            return self._read_config()
        config = message("ModelServerConfig")()
        config.model_config_list.config.add(
            name=self._options.model_name,
            base_path=self._options.model_base_path,
            model_platform="tensorflow",
        )
        return config

    def _read_config(self) -> Any:
        text = Path(self._options.model_config_file).read_text()
        return text_format.Parse(text, message("ModelServerConfig")())

    def _poll_config(self) -> None:
        while True:
            time.sleep(self._options.model_config_file_poll_wait_seconds)
            with contextlib.suppress(OSError, text_format.ParseError, Rejected):
                self.reload(self._read_config())

    def reload(self, config: Any) -> None:
        """Apply a whole model configuration; models that are not in it are unloaded.

        Raises:
            Rejected: A label is for a version that is not available. Everything else was applied.
        """
        with self._lock:
            entries = {entry.name: entry for entry in config.model_config_list.config}
            for name in set(self._models) - set(entries):
                self._models.pop(name).stop()
            new = set(entries) - set(self._models)
            for name, entry in entries.items():
                if name in new:
                    self._models[name] = self._manager(entry)
                else:
                    self._models[name].reconfigure(entry)
            for name in new:
                if not self._models[name].wait_available(FIRST_LOAD):
                    raise Rejected(FAILED_PRECONDITION, f"no version of {name} could be loaded")
            for name, entry in entries.items():
                self._label(name, dict(entry.version_labels))

    def _manager(self, entry: Any) -> Manager:
        def load(folder: Path) -> Servable:
            return Servable(entry.name, folder, self._serving, self.metrics)

        return Manager(
            entry,
            load,
            poll=self._options.file_system_poll_wait_seconds,
            retries=self._options.max_num_load_retries,
            interval=self._options.load_retry_interval_micros / 1e6,
        )

    def _label(self, name: str, labels: dict[str, int]) -> None:
        states = self._models[name].states()
        for label, number in labels.items():
            available = number in states and states[number][0] is VersionState.AVAILABLE
            if not available and self._labels.get(name, {}).get(label) != number:
                problem = f"Request to assign label to version {number} of model {name}, "
                problem += "which is not currently available for inference"
                raise Rejected(FAILED_PRECONDITION, problem)
        self._labels[name] = labels

    def model(self, spec: Any) -> Manager:
        """Return the manager of the model that a request names.

        Raises:
            Rejected: It is not served.
        """
        manager = self._models.get(spec.name)
        if manager is None:
            raise Rejected(NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
        return manager

    @contextlib.contextmanager
    def servable(self, spec: Any) -> Iterator[tuple[int, Servable]]:
        """Keep the version of a request from being unloaded; it is named by number, by label or not at all.

        Raises:
            Rejected: It is not served.
        """
        manager = self.model(spec)
        number: int | None = None
        if spec.HasField("version"):
            number = spec.version.value
        elif spec.version_label:
            labels = self._labels.get(spec.name, {})
            if spec.version_label not in labels:
                problem = f"Unrecognized servable version label: {spec.version_label}"
                raise Rejected(INVALID_ARGUMENT, problem)
            number = labels[spec.version_label]
        try:
            with manager.use(number) as held:
                yield held
        except LookupError as error:
            raise Rejected(NOT_FOUND, str(error)) from error

    def stop(self) -> None:
        """Unload everything."""
        for manager in self._models.values():
            manager.stop()
