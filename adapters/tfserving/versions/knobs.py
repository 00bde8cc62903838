"""Reads and changes the knobs that live in a version folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tuner.adapters.tfserving.batching import (
    VERSION_KNOBS,
    Batching,
    batch_limit,
    parse_batching,
    read_batching,
    read_ours,
    rewrite,
    splits,
    write_batching,
)
from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.flags import notes_on_flags
from tuner.adapters.tfserving.versions.change import VersionChanger, VersionServer
from tuner.adapters.tfserving.versions.folders import Marker, Versions
from tuner.adapters.tfserving.versions.steering import Steering
from tuner.errors import AdapterError, Refused

__all__ = ["VersionKnobs"]

log = logging.getLogger(__name__)


class VersionKnobs:
    """The knobs of the version that serves.

    Args:
        server: The server.
        versions: The model's folder.
        steering: Brings requests to a version; None if that cannot be done.
        timeout: Longest wait for a version to be loaded, s.

    Attributes:
        limit: The largest value of ``max_batch_size``.
        splits: Whether requests of more rows than a batch holds are split instead of refused.

    Raises:
        AdapterError: The server cannot be asked, or the folder not be read.
    """

    def __init__(
        self, server: VersionServer, versions: Versions, steering: Steering | None, timeout: float
    ) -> None:
        self._server = server
        self._versions = versions
        self._changer = VersionChanger(server, versions, steering, timeout) if steering is not None else None
        self._found = self._serving()
        self._found_text = versions.batching(self._found.number)
        self.limit, self.splits = self._bounds(self._found)

    def why_read_only(self, flags: Mapping[str, str] | None) -> list[str]:
        """Return why the knobs cannot be turned; empty if they can.

        Args:
            flags: What the server was started with, if that can be seen.
        """
        if not self._versions.writable():
            return [f"{self._versions.base} cannot be written: new versions cannot be made"]
        if self._changer is None:
            return ["a label moves by the server's --model_config_file: name it with config= in the target"]
        return notes_on_flags(flags)

    def read(self, names: Iterable[str]) -> dict[str, float]:
        """Return the values of the named knobs, as far as they are those of a version.

        The operator may have deployed one with another limit meanwhile: the attributes are those of this one.
        """
        marker = self._serving()
        self.limit, self.splits = self._bounds(marker)
        known = [name for name in names if name in VERSION_KNOBS]
        return dict(read_ours(self._parse(marker.number), marker.configuration, known))

    def write(self, wanted: Mapping[str, float]) -> None:
        """Have a version with these values serve.

        Raises:
            Refused: The server did not load it, or not in time, or a version of the operator's is on its way;
                the old one serves.
            TimedOut: It was loaded and did not come to serve; the old one serves.
            AdapterError: It cannot be asked.
        """
        assert self._changer is not None
        configuration = {name: value for name, value in wanted.items() if name in VERSION_KNOBS}
        with self._versions.locked():
            self._changer.steering.resend()
            present = self._serving()
            self._changer.settle_label(present.number)
            number = max([*self._versions.numbers(), *self._server.versions()]) + 1
            self._check_deployments(present.number)
            serving, present = present.number, self._base(present)
            text = write_batching(rewrite(self._operators(present), configuration))
            marker = Marker(
                number=number,
                origin=present.origin,
                batching=present.batching,
                configuration=configuration,
            )
            self._changer.publish(
                present.number, marker, text, lambda: self._check_again(serving, present.number)
            )
            try:
                self._changer.prune()
            except AdapterError as error:  # the change came about all the same
                log.warning("older versions of ours are removed with the next change: %s", error)

    def _check_deployments(self, present: int) -> None:
        """Refuse a change while a newer version of the operator's is on its way: ours would overtake it.

        Args:
            present: The version that serves.
        """
        assert self._changer is not None
        if self._changer.steering.label:
            return  # requests go where the label stands, whatever is newest
        numbers = self._changer.steering.wanted(self._versions.numbers())
        newer = [n for n in numbers if n > present and self._versions.marker(n) is None]
        statuses = self._server.versions()
        # The server looks at all folders at once: one that it left out for a newer one is not on its way.
        seen = max((n for n in newer if n in statuses), default=0)
        for number in newer:
            ended = number < seen
            if number in statuses:
                state, error = statuses[number]
                # One that ended well and is there again, as the newest, will be loaded again.
                ended = state is VersionState.END and (bool(error) or number < newer[-1])
            if not ended:
                problem = f"version {number} is being deployed, and a change would take its place"
                raise Refused(f"{problem}; version {present} serves until then")

    def _check_again(self, serving: int, source: int) -> None:
        """Refuse a change whose version is there already, but came after something of the operator's."""
        self._check_deployments(serving)
        if source not in self._versions.numbers():
            raise Refused(f"version {source} was removed meanwhile, and the one made from it with it")

    def _base(self, present: Marker) -> Marker:
        """Return the version to go on from: the one that serves, unless its origin is not what should serve.

        The operator goes back to an older version by removing the newest, and names versions after he has put
        them there. One of ours still serves then. If no other is left, he has only cleaned up.
        """
        assert self._changer is not None
        if self._changer.steering.label:
            return present  # he moves the label
        theirs = self._sound(self._changer.steering.wanted(self._theirs()))
        if present.origin in theirs:  # else it was withdrawn
            loaded = self._server.versions()
            theirs = [n for n in theirs if n > present.origin and n in loaded]
        return self._marker(theirs[-1]) if theirs else present

    def _theirs(self) -> list[int]:
        """Return the operator's versions, in order."""
        return [n for n in self._versions.numbers() if self._versions.marker(n) is None]

    def _sound(self, numbers: Iterable[int]) -> list[int]:
        """Return the versions that the server has not failed to load."""
        statuses = self._server.versions()
        return [n for n in numbers if n not in statuses or not statuses[n].error]

    def restore(self) -> bool:
        """Have the operator's own version serve again and remove ours; return whether any was serving.

        If the version that was found at opening was one of ours, left by an earlier run, a version with its
        parameters is made. If a version that the operator has added since then serves, it goes on serving.

        Raises:
            AdapterError: As `write`.
        """
        if self._changer is None:
            return False  # nothing could be changed
        present = self._serving()
        if present.number == present.origin:
            # Versions of ours would serve once that one is withdrawn.
            if self._changer.leftovers() and self._versions.writable():
                self._withdraw()
            return False
        if self._found.number != self._found.origin:
            runs = self._versions.batching(present.number) == self._found_text
            if runs and self._base(present) == present:  # else the operator has withdrawn its model
                return False
            self.write(read_batching(parse_batching(self._found_text, "found"), VERSION_KNOBS))
            return True
        self._withdraw()
        return True

    def _withdraw(self) -> None:
        assert self._changer is not None
        with self._versions.locked():
            self._changer.catch_up()
            present = self._serving()  # read before where the label is to stand: the operator may move it now
            self._changer.withdraw(present.number, self._operators_version(present))

    def _operators_version(self, present: Marker) -> int:
        """Return the version to go back to: the newest of the operator's, or the one for the label.

        That is the one that it stood for, or that the operator is moving it to.
        """
        assert self._changer is not None
        theirs = self._theirs()
        if not theirs:
            raise AdapterError(f"{self._versions.base} has no version left but ours; they stay")
        if present.number == present.origin and not self._changer.steering.label:
            return present.number
        wanted = (self._changer.steering.stands(), present.origin) if self._changer.steering.label else ()
        named = self._changer.steering.wanted(theirs) or theirs
        return next((number for number in wanted if number in theirs), max(self._sound(named) or named))

    def _serving(self) -> Marker:
        """Return the marker of the version that serves; for one of the operator's, what it would say."""
        return self._marker(self._server.serving())

    def _marker(self, number: int) -> Marker:
        marker = self._versions.marker(number)
        if marker is not None:
            return marker
        text = self._versions.batching(number)
        return Marker(number=number, origin=number, batching=text, configuration={})

    def _operators(self, marker: Marker) -> Batching:
        return parse_batching(marker.batching, f"parameters of version {marker.origin}")

    def _bounds(self, marker: Marker) -> tuple[int, bool]:
        """Return the limit that a version leaves for batches, and whether larger requests are split."""
        operators = self._operators(marker)
        return batch_limit(operators), splits(operators)

    def _parse(self, number: int) -> Batching:
        return parse_batching(self._versions.batching(number), f"parameters of version {number}")
