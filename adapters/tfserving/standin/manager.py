"""Loads and unloads the versions of one model as its folder and its policy demand.

A new version is available before an old one is unloaded, so that some version always serves.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.standin.servable import Servable

__all__ = ["LoadedVersion", "Manager"]

log = logging.getLogger(__name__)


@dataclass
class LoadedVersion:
    """One version and what it is doing."""

    state: VersionState
    servable: Servable | None = None
    error: str = ""


class Manager:
    """The versions of one model. A thread looks at the folder, loads and unloads.

    Args:
        config: The model's ``ModelConfig``.
        load: Loads a version from its folder.
        poll: How often the folder is looked at, s.
        retries: How often loading is tried again after a failure.
        interval: How long to wait before that, s.
    """

    def __init__(
        self, config: Any, load: Callable[[Path], Servable], *, poll: float, retries: int, interval: float
    ) -> None:
        self.config = config
        self._load = load
        self._poll = poll
        self._retries = retries
        self._interval = interval
        self._entries: dict[int, LoadedVersion] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._loaded_once = False  # whether all versions of the beginning were loaded, or failed
        self._thread = threading.Thread(target=self._manage, name=f"manager-{config.name}", daemon=True)
        self._thread.start()

    def reconfigure(self, config: Any) -> None:
        """Change the configuration of the model."""
        with self._changed:
            self.config = config
            self._changed.notify_all()

    def states(self) -> dict[int, tuple[VersionState, str]]:
        """Return what each version is doing, and why it failed if it did."""
        with self._changed:
            return {number: (entry.state, entry.error) for number, entry in self._entries.items()}

    def wait_available(self, timeout: float) -> bool:
        """Wait until every version that is there was loaded once; return whether some are available."""
        with self._changed:
            self._changed.wait_for(lambda: self._loaded_once, timeout)
            return bool(self._available())

    @contextlib.contextmanager
    def use(self, number: int | None) -> Iterator[tuple[int, Servable]]:
        """Keep a version from being unloaded while it is used; by default the newest available one.

        Raises:
            LookupError: It is not available.
        """
        with self._changed:
            available = self._available()
            chosen = number if number is not None else max(available, default=-1)
            if chosen not in available:
                raise LookupError(f"Servable not found for request: {self._named(number)}")
            servable = available[chosen]
            servable.__enter__()
        try:
            yield chosen, servable
        finally:
            servable.__exit__()

    def _named(self, number: int | None) -> str:
        name = self.config.name
        return f"Latest({name})" if number is None else f"Specific({name}, {number})"

    def stop(self) -> None:
        """End the thread and unload everything."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()
        for entry in self._entries.values():
            if entry.servable is not None:
                entry.servable.close()

    def _available(self) -> dict[int, Servable]:
        return {
            number: entry.servable
            for number, entry in self._entries.items()
            if entry.state is VersionState.AVAILABLE and entry.servable is not None
        }

    def _manage(self) -> None:
        """Load and unload versions as the folder and the policy demand, until stopped."""
        while not self._ended:
            aspired = self._aspired()
            for number, folder in sorted(aspired.items()):
                if self._should_load(number):
                    self._load_version(number, folder)
            # The new versions must be available before the old ones go, or requests would find none.
            if all(number in self._available() for number in aspired):
                for number in sorted(set(self._available()) - set(aspired)):
                    self._unload_version(number)
            with self._changed:
                self._loaded_once = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ended, self._poll)

    def _aspired(self) -> dict[int, Path]:
        """Return the folders of the versions that should be served ("aspired") by their numbers."""
        base = Path(self.config.base_path)
        try:
            folders = {int(child.name): child for child in base.iterdir() if child.name.isdigit()}
        except OSError as error:
            log.warning("%s: %s", base, error)
            return {}
        policy = self.config.model_version_policy
        if policy.HasField("specific"):
            return {n: folders[n] for n in policy.specific.versions if n in folders}
        if policy.HasField("all"):
            return folders
        count = policy.latest.num_versions or 1
        return {number: folders[number] for number in sorted(folders)[-count:]}

    def _should_load(self, number: int) -> bool:
        """Whether a version was never loaded, or was unloaded without an error."""
        entry = self._entries.get(number)
        return entry is None or (entry.state is VersionState.END and not entry.error)

    def _load_version(self, number: int, folder: Path) -> None:
        """Load a version; after a failure try again, as often as allowed, while it should still be served."""
        self._set(number, LoadedVersion(VersionState.LOADING))
        for attempt in range(self._retries + 1):
            try:
                servable = self._load(folder)
            except Exception as error:  # a damaged model must not end the server
                log.error("version %s: %s", number, error)
                if attempt == self._retries or not self._still_wanted(number):
                    self._set(number, LoadedVersion(VersionState.END, error=str(error)))
                    return
                continue
            self._set(number, LoadedVersion(VersionState.AVAILABLE, servable))
            log.info("version %s of %s is available", number, self.config.name)
            return

    def _still_wanted(self, number: int) -> bool:
        """Wait for the interval between two attempts; return whether a version should still be served."""
        deadline = time.monotonic() + self._interval
        while time.monotonic() < deadline and not self._ended:
            if number not in self._aspired():
                return False
            time.sleep(min(self._poll, 0.1))
        return not self._ended

    def _unload_version(self, number: int) -> None:
        servable = self._entries[number].servable
        self._set(number, LoadedVersion(VersionState.UNLOADING))
        assert servable is not None
        servable.close()
        self._set(number, LoadedVersion(VersionState.END))

    def _set(self, number: int, entry: LoadedVersion) -> None:
        with self._changed:
            self._entries[number] = entry
            self._changed.notify_all()
