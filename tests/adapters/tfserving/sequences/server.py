"""A TensorFlow Serving in virtual time, as its manager, its labels and its file system poller behave.

It is as its source says, without gRPC and TensorFlow: a version "loads" by reading the weights' file, and a
damaged one is tried again. What matters here is when it looks, in which order it loads and unloads, and what
it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tuner.adapters.tfserving.batching import FILE, parse_batching
from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.schema import message
from tuner.errors import AdapterError, Refused, Unreachable

__all__ = ["WEIGHTS", "PretendedServer", "Served"]

WEIGHTS = "saved_model.pb"
BROKEN = "broken"
POLL = 1.0
RETRY = 3.0
"""Time until a damaged version is tried again, s."""
RETRIES = 20


@dataclass
class Served:
    """One version in the server."""

    state: VersionState
    due: float
    """When it is loaded, or tried again, s."""
    weights: str = ""
    batching: str | None = None
    error: str = ""
    attempts: int = 0
    wanted: bool = True
    """Whether it was wanted ever since it was loaded last: one that comes back is tried again."""


class PretendedServer:
    """One server with several models.

    Args:
        config: Its ``ModelServerConfig``, or the file that it is read from.
        polls: Whether it reads the file again every second.
        loading: How long a version takes to load, s.
    """

    def __init__(self, config: Any, *, file: Path | None, polls: bool, loading: float) -> None:
        self.now = 0.0
        self.up = True
        self._file, self._polls, self._loading = file, polls, loading
        self._config = config
        self._first = config
        self._labels: dict[str, dict[str, int]] = {}
        self._models: dict[str, dict[int, Served]] = {}
        self._looks = 0.0
        self._told: dict[str, dict[int, Path]] = {}
        self.starts = 0
        self.failed_start = ""
        self.restart()

    def restart(self) -> None:
        """Begin anew: what is on disk is loaded, and labels that cannot be given end the start."""
        self._models, self._labels, self.starts = {}, {}, self.starts + 1
        self._config = self._read() if self._file is not None else self._first
        for entry in self._config.model_config_list.config:
            self._models[entry.name] = {}
        self._look()
        self._act()
        for _ in range(20):
            self.advance(self._loading)
            if self._told and all(self._settled(name) for name in self._models):
                break
        self.failed_start = ""
        try:
            self._label()
        except Refused as error:
            self.failed_start = str(error)

    def _settled(self, name: str) -> bool:
        states = [version.state for version in self._models[name].values()]
        return VersionState.LOADING not in states and VersionState.START not in states

    def _read(self) -> Any:
        assert self._file is not None
        return text_format.Parse(self._file.read_text(), message("ModelServerConfig")())

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while True:
            dues = [v.due for v in self._all() if v.state is VersionState.LOADING]
            event = min([self._looks, until, *[due for due in dues if due > self.now]])
            self.now = max(event, self.now)
            if not self.up:
                self._looks = until + POLL
            elif self.now >= self._looks:
                self._look()
            self._act()
            if self.now >= until:
                return

    def _all(self) -> Iterator[Served]:
        for versions in self._models.values():
            yield from versions.values()

    def _look(self) -> None:
        self._looks = self.now + POLL
        if self._polls and self._file is not None:
            # A file that makes no sense is not taken.
            with suppress(OSError, text_format.ParseError, Refused):
                self._take(self._read())
            self._looks = self.now + POLL
        self._told = {entry.name: self._aspired(entry) for entry in self._config.model_config_list.config}

    def _aspired(self, entry: Any) -> dict[int, Path]:
        base = Path(entry.base_path)
        folders = {int(c.name): c for c in base.iterdir() if c.name.isdigit()} if base.exists() else {}
        policy = entry.model_version_policy
        if policy.HasField("specific"):
            return {n: folders[n] for n in policy.specific.versions if n in folders}
        if policy.HasField("all"):
            return folders
        return {n: folders[n] for n in sorted(folders)[-(policy.latest.num_versions or 1) :]}

    def keeps(self, model: str) -> set[int]:
        """The versions of a model that its configuration asks for, whether they are loaded or not."""
        entries = self._config.model_config_list.config
        return {number for entry in entries if entry.name == model for number in self._aspired(entry)}

    def _act(self) -> None:
        """Load what is aspired; unload what is not, once something aspired is available."""
        if not self.up:
            return
        for entry in self._config.model_config_list.config:
            versions = self._models.setdefault(entry.name, {})
            aspired = self._told.get(entry.name, {})
            for number in aspired:
                held = versions.get(number)
                if held is None or (held.state is VersionState.END and not (held.error and held.wanted)):
                    versions[number] = Served(VersionState.LOADING, self.now + self._loading)
            for number, held in versions.items():
                if held.state is VersionState.LOADING and held.due <= self.now:
                    self._load(held, aspired.get(number))
            ready = any(versions[n].state is VersionState.AVAILABLE for n in aspired)
            for number, held in versions.items():
                if number in aspired:
                    continue
                if held.state is VersionState.AVAILABLE and (ready or not aspired):
                    versions[number] = Served(VersionState.END, self.now)
                held.wanted = False

    def _load(self, held: Served, folder: Path | None) -> None:
        if folder is None:  # it is no longer wanted: that is no error
            held.state = VersionState.END
            return
        try:
            held.weights = (folder / WEIGHTS).read_text()
            file = folder / FILE
            held.batching = file.read_text() if file.exists() else None
            parse_batching(held.batching, "parameters")
            if held.weights == BROKEN:
                raise OSError("damaged")
        except (OSError, AdapterError) as error:
            held.attempts += 1
            if held.attempts > RETRIES:
                held.state, held.error = VersionState.END, str(error)
            else:
                held.due = self.now + RETRY
            return
        held.state = VersionState.AVAILABLE

    def _take(self, config: Any) -> None:
        if not config.model_config_list.config:
            return  # there is nothing to load
        before, self._config = self._config, config
        names = {entry.name for entry in config.model_config_list.config}
        for name in set(self._models) - names:
            del self._models[name]
        if before != config:
            self._looks = self.now
        self._label()

    def _label(self) -> None:
        labels: dict[str, dict[str, int]] = {}
        for entry in self._config.model_config_list.config:
            for label, number in entry.version_labels.items():
                held = self._models.get(entry.name, {}).get(number)
                known = self._labels.get(entry.name, {}).get(label) == number
                if not known and (held is None or held.state is not VersionState.AVAILABLE):
                    problem = f"Request to assign label to version {number} of model {entry.name}"
                    raise Refused(f"{problem}, which is not currently available for inference")
            labels[entry.name] = dict(entry.version_labels)
        self._labels = labels

    def reload(self, config: Any) -> None:
        """Take a whole model configuration."""
        self.check()
        copy = message("ModelServerConfig")()
        copy.CopyFrom(config)
        self._take(copy)

    def check(self) -> None:
        """Answer nothing while it is down."""
        if not self.up:
            raise Unreachable("the server is away")

    def states(self, model: str) -> dict[int, VersionStatus]:
        """Return what each version is doing."""
        self.check()
        return {
            n: VersionStatus(v.state, v.error if v.state is VersionState.END else "")
            for n, v in self._models[model].items()
        }

    def answers(self, model: str, label: str = "") -> Served | None:
        """Return what a request is answered with; None if it fails."""
        versions = self._models.get(model, {})
        available = [n for n, v in versions.items() if v.state is VersionState.AVAILABLE]
        number = self._labels.get(model, {}).get(label) if label else max(available, default=None)
        return versions[number] if number in available else None

    def labelled(self, model: str, label: str) -> int:
        """Return the version that a label stands for."""
        number = self.standing(model, label)
        if number is None:
            raise AdapterError(f"Servable not found for request: {label} of {model}")
        return number

    def standing(self, model: str, label: str) -> int | None:
        """Return the version that a label stands for, None if it stands for none that is loaded."""
        self.check()
        return self._labels.get(model, {}).get(label) if self.answers(model, label) is not None else None
