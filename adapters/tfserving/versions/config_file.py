"""How requests come to a new version where the model configuration file names versions or has labels.

The steps are those of every `Steering`:

1. *admit*: the new version is named beside the old one;
2. *switch*: once it is available, the label moves to it (a label can only stand for an available version);
3. *dismiss*: versions of ours that no longer serve are no longer named.

The whole file is sent each time, because models that are missing from it would be unloaded. It is also
written, so that a server that polls it, or starts again, gets the same. The operator's own text is kept
beside it until everything is put back.

Several models of a server may be tuned at once, each as a target of its own. So each changes its own entry
only, and one after the other: a file beside it is locked from the reading to the sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from google.protobuf import text_format

from tuner.adapters.tfserving.client import VersionState, VersionStatus
from tuner.adapters.tfserving.versions.config_text import (
    KEPT,
    delete,
    fixed,
    is_his,
    is_there,
    lock_of,
    locked,
    read,
)
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, InvalidInput, Refused, StorageError
from tuner.files.storage import write_for_server

__all__ = ["ConfigFile", "LabelServer"]

NAME_IT = "name the server's --model_config_file"


class LabelServer(Protocol):
    """Takes a model configuration, and says where the labels of our model stand."""

    def versions(self) -> dict[int, VersionStatus]:
        """Return what the server says of each version."""
        ...

    def standing(self, label: str) -> int | None:
        """Return the version that a label stands for, None if it stands for none that is loaded."""
        ...

    def reload(self, config: Any, timeout: float) -> None:
        """Have the server take a whole model configuration."""
        ...


class Edit(NamedTuple):
    """What was done in a model's entry for a version, so that just that can be undone."""

    number: int
    """The version."""
    named: bool
    """Whether we named it, where versions are named."""
    before: int
    """The version that the label stood for; 0 without a label."""
    now: int
    """The version that it stands for, unless somebody else has moved it."""


class ConfigFile(Steering):
    """Brings requests to a version by the model configuration file of a server.

    Args:
        path: The file, as it is seen from here.
        model: The model to steer; the others stay as they are.
        label: The label that clients ask for; empty if they name no version.
        server: Is sent the file.
        timeout: Longest wait for the server to take it, s.

    Raises:
        InvalidInput: The file cannot be used for this model.
    """

    def __init__(self, path: Path, model: str, label: str, server: LabelServer, timeout: float) -> None:
        self._path = path
        self._model = model
        self.label = label
        self._server = server
        self._timeout = timeout
        self._edit: Edit | None = None
        self._unsent = False  # whether the server may not have what was undone in the file
        config = read(self._path)[1]
        if not any(entry.name == model for entry in config.model_config_list.config):
            problem = f"{path} has 0 entries for the model '{model}'"
            raise InvalidInput("TARGET config", problem, NAME_IT)
        self._check(self._entry(config))

    def labelled(self) -> set[int]:
        """Return the versions that other labels stand for, in the file and in the server.

        They differ while the server has not read the file, or refuses it.
        """
        named = {label: n for label, n in self._read_entry().version_labels.items() if label != self.label}
        standing = {self._server.standing(label) for label in named}
        return {*named.values(), *(number for number in standing if number is not None)}

    def wanted(self, numbers: Iterable[int]) -> list[int]:
        """Return which of these versions the server may load: those that are named, where they are."""
        policy = self._read_entry().model_version_policy
        named = set(policy.specific.versions)
        return [n for n in numbers if n in named or not policy.HasField("specific")]

    def places(self) -> int | None:
        """Return how many of the newest versions the server keeps loaded, None if that is no number."""
        policy = self._read_entry().model_version_policy
        if policy.HasField("specific") or policy.HasField("all"):
            return None
        return max(int(policy.latest.num_versions), 1)  # 0 counts as 1

    def stands(self) -> int:
        """Return the version that our label is to stand for; 0 without a label.

        The server may not have read the file yet.
        """
        return int(self._read_entry().version_labels.get(self.label, 0)) if self.label else 0

    def strays(self, there: Iterable[int]) -> list[int]:
        """Return versions that the file names and the operator's own text does not, unless they are there."""
        if not is_there(self._kept()):
            return []
        named, his = (self._named(path) for path in (self._path, self._kept()))
        return sorted(named - his - set(there))

    def _named(self, path: Path) -> set[int]:
        return set(self._entry(read(path)[1]).model_version_policy.specific.versions)

    def unsettled(self) -> bool:
        """Whether the operator's text lies beside the file, or a lock of a tuner that was killed."""
        return is_there(self._kept()) or is_there(lock_of(self._path))

    def admit(self, number: int, serving: int = 0) -> None:
        """Name the version, where versions are named.

        Raises:
            Refused: Somebody is moving the label; it stays where it is.
        """
        with locked(self._path):
            text, config = read(self._path)
            entry = self._entry(config)
            named = _unnamed(entry, number)
            before = int(entry.version_labels.get(self.label, 0))
            if self.label and serving and before not in (serving, number):
                raise self._moved()
            self._edit = Edit(number, named, before, now=before)
            if named:
                entry.model_version_policy.specific.versions.append(number)
                self._put(text, config)

    def switch(self, number: int) -> None:
        """Move the label.

        Raises:
            Refused: Since the version was admitted, somebody has moved the label or written a file that does
                not name the version, so that the server is about to unload it; the label stays where it is.
        """
        if not self.label:
            return
        with locked(self._path):
            text, config = read(self._path)
            entry = self._entry(config)
            if self._edit is not None:
                if entry.version_labels.get(self.label, 0) != self._edit.now:
                    raise self._moved()
                if _unnamed(entry, number):
                    raise Refused(f"somebody has taken version {number} out of {self._path}; it stays out")
                self._edit = self._edit._replace(now=number)
            entry.version_labels[self.label] = number
            self._put(text, config)

    def _moved(self) -> Refused:
        return Refused(f"somebody has moved the label '{self.label}' in {self._path}; it stays there")

    def dismiss(self, numbers: Iterable[int]) -> None:
        """No longer name the versions."""
        with locked(self._path):
            text, config = read(self._path)
            entry = self._entry(config)
            named = entry.model_version_policy.specific.versions
            kept = [version for version in named if version not in set(numbers)]
            if entry.model_version_policy.HasField("specific") and kept != list(named):
                del named[:]
                named.extend(kept)
                self._put(text, config)

    def keep(self) -> None:
        """Have what was written for the version stay."""
        self._edit = None

    def revert(self) -> None:
        """Undo what we wrote for the version, and send it; what others have changed meanwhile stays.

        Raises:
            AdapterError: The server has not taken it. The file has it, for when it starts again.
        """
        if self._edit is None:
            return
        edit, self._edit = self._edit, None
        with locked(self._path):
            text, config = read(self._path)
            entry = self._entry(config)
            if edit.named and edit.number in entry.model_version_policy.specific.versions:
                entry.model_version_policy.specific.versions.remove(edit.number)
            if edit.before and entry.version_labels.get(self.label, 0) == edit.number:
                entry.version_labels[self.label] = edit.before
            self._put(text, config, backward=True)

    def resend(self) -> None:
        """Send the file again if the server has not taken what was undone.

        Raises:
            AdapterError: It has not taken it now either.
        """
        if self._unsent:
            with locked(self._path):
                self._send(read(self._path)[1])

    def send(self) -> None:
        """Send the file if it has labels: the operator may have moved some that the server has not read.

        Raises:
            Refused: A label is for a version that is not loaded. The others stand where the file has them.
            AdapterError: The server has not taken it.
        """
        with locked(self._path):
            config = read(self._path)[1]
            if not self._entry(config).version_labels:
                return
            try:
                self._send(config)
            except Refused:
                self._keep_unloaded(self._entry(config).version_labels)
                self._server.reload(config, self._timeout)
                raise

    def _keep_unloaded(self, labels: MutableMapping[str, int]) -> None:
        """Have labels for versions that are not loaded stay where they stand.

        Args:
            labels: Modified in place.
        """
        loaded = {
            n for n, status in self._server.versions().items() if status.state is VersionState.AVAILABLE
        }
        for label in [label for label, number in labels.items() if number not in loaded]:
            # One that stands for nothing stays, too: the server might not take it again.
            if (standing := self._server.standing(label)) is not None:
                labels[label] = standing

    def restore(self, tuned: Collection[int] = ()) -> None:
        """Delete the operator's text beside the file, which has it again, unless somebody has changed it.

        As long as versions or labels of other models differ, or other labels stand for versions of tuners, it
        is left to the targets that tune them.
        """
        kept = self._kept()
        with locked(self._path):
            if not is_there(kept):
                return
            (his, original), (text, config) = read(kept), read(self._path)
            entry = self._entry(config)
            shared = any(n in tuned for label, n in entry.version_labels.items() if label != self.label)
            changed = self._entry(original) != entry and not shared
            if original == config or changed or is_his(text, his) or fixed(original) != fixed(config):
                delete(kept)

    def _kept(self) -> Path:
        return self._path.with_name(f"{self._path.name}{KEPT}")

    def _read_entry(self) -> Any:
        return self._entry(read(self._path)[1])

    def _entry(self, config: Any) -> Any:
        entries = [entry for entry in config.model_config_list.config if entry.name == self._model]
        if len(entries) != 1:  # such as while somebody writes the file
            problem = f"{self._path} has {len(entries)} entries for the model '{self._model}'"
            raise AdapterError(f"{problem} now; it must have one")
        return entries[0]

    def _check(self, entry: Any) -> None:
        policy = entry.model_version_policy
        keeps = policy.HasField("specific") or policy.HasField("all") or policy.latest.num_versions > 1
        if self.label and not keeps:
            problem = (
                f"{self._path} keeps only the newest version, so that a label has nothing to move between"
            )
            fix = "set model_version_policy to specific, all, or latest with num_versions 2"
            raise InvalidInput("TARGET config", problem, fix)
        if self.label and self.label not in entry.version_labels:
            known = ", ".join(sorted(entry.version_labels)) or "none"
            raise InvalidInput(
                "TARGET label", f"{self._path} has no label '{self.label}'", f"it has: {known}"
            )

    def _send(self, config: Any) -> None:
        self._server.reload(config, self._timeout)
        self._unsent = False

    def _put(self, before: str, config: Any, *, backward: bool = False) -> None:
        """Write the file, then send it. In the other order a polling server might read the old file again.

        Where it means what the operator's own text means, that is written, with its comments.

        Args:
            before: The file's text that it was made from; if somebody has changed the file since, that stays.
            config: What to write.
            backward: Whether it is what was before: then it stays written if the server does not take it.
        """
        kept = self._kept()
        try:
            if not is_there(kept) or is_his(before, read(kept)[0]):
                write_for_server(kept, before)
            text, original = read(kept)
            text = text if original == config else text_format.MessageToString(config)
            write_for_server(self._path, text, instead_of=before)
        except StorageError as error:
            raise Refused(f"{error}; the old configuration still serves") from error
        try:
            self._send(config)
        except AdapterError:
            self._unsent = backward
            if not backward:
                with suppress(StorageError):
                    write_for_server(self._path, before, instead_of=text)
            raise


def _unnamed(entry: Any, number: int) -> bool:
    """Whether a model's entry names the versions that are to be loaded, and this one is not among them."""
    policy = entry.model_version_policy
    return policy.HasField("specific") and number not in policy.specific.versions
