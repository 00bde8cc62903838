"""How requests come to a new version: by default the newest serves, else the model configuration decides.

1. *admit*: the server is to load the new version beside the old one;
2. *switch*: once it is available, the requests go to it;
3. *keep*, or *revert* if something has failed;
4. *dismiss*: versions of ours that no longer serve need not be loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["Steering"]


class Steering:
    """Brings requests to a version, of a server that finds new versions by itself and serves the newest.

    Nothing is to be done there. For other servers see `config_file`.
    """

    label = ""
    """The label that clients ask for; empty if they name no version."""

    def labelled(self) -> set[int]:
        """Return the versions that other labels stand for, in the configuration or in the server."""
        return set()

    def wanted(self, numbers: Iterable[int]) -> list[int]:
        """Return which of these versions the server may load, as far as that is known."""
        return list(numbers)

    def places(self) -> int | None:
        """Return how many of the newest versions the server keeps loaded, None if that is no number."""
        return None

    def stands(self) -> int:
        """Return the version that our label is to stand for; 0 without a label."""
        return 0

    def strays(self, there: Iterable[int]) -> list[int]:
        """Return versions that we named and that are gone, other than those that are there."""
        del there
        return []

    def unsettled(self) -> bool:
        """Whether something of ours may be left in the configuration."""
        return False

    def admit(self, number: int, serving: int = 0) -> None:
        """Have the server load a version beside those it serves.

        Args:
            number: The version.
            serving: The version that a label must stand for, if it is to move and does not stand for the new
                one already; 0 if that does not matter.
        """

    def switch(self, number: int) -> None:
        """Bring the requests to a version that is available."""

    def dismiss(self, numbers: Iterable[int]) -> None:
        """Have the server no longer load these versions."""

    def revert(self) -> None:
        """Undo what was done since a version was admitted, unless that is to be kept."""

    def keep(self) -> None:
        """Have what was done stay."""

    def resend(self) -> None:
        """Undo what could not be undone before, because the server did not answer."""

    def send(self) -> None:
        """Have the server's labels stand where the configuration has them.

        Raises:
            Refused: A label is for a version that is not loaded; the others do.
        """

    def restore(self, tuned: Collection[int] = ()) -> None:
        """Put back what was found at opening.

        Args:
            tuned: Versions that other tuners have made for other labels.
        """
