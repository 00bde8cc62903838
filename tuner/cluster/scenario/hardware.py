"""The hardware of a scenario: accelerators that are counted, or of several kinds, or rented instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field

from tuner.cluster.scenario.rental import Rental
from tuner.cluster.scenario.session import Count, ExecutionProfile, Session
from tuner.errors import InvalidInput
from tuner.files.schema import StrictPart
from tuner.planning.pools.catalogue import Offers, make_offers
from tuner.workload.sizes import SizeDistribution

__all__ = ["Accelerators", "Hardware"]

ANY = "default"
"""The kind of accelerators that are only counted."""


class Accelerators(StrictPart):
    """Accelerators of one kind, as the file names them."""

    kind: str = Field(min_length=1)
    count: Count


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The accelerators of a cluster, and how long they execute the batches of a session."""

    groups: tuple[tuple[str, int], ...]
    """Kind and number, in the order in which accelerators are numbered; a kind may come several times."""
    rental: Rental | None = None
    """If they are instances: what is rented. Their types are the kinds."""

    @classmethod
    def of(cls, accelerators: int | Sequence[Accelerators]) -> Hardware:
        """Return the accelerators of a file."""
        if isinstance(accelerators, int):
            return cls(groups=((ANY, accelerators),))
        return cls(groups=tuple((one.kind, one.count) for one in accelerators))

    @classmethod
    def rented(cls, rental: Rental) -> Hardware:
        """Return rented instances, one accelerator each."""
        return cls(groups=tuple(rental.pool.items()), rental=rental)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds; the order numbers them."""
        return tuple(dict.fromkeys(kind for kind, _ in self.groups))

    @property
    def kind_of_each(self) -> list[int]:
        """The number of the kind of every accelerator."""
        numbers = {kind: index for index, kind in enumerate(self.kinds)}
        return [numbers[kind] for kind, count in self.groups for _ in range(count)]

    def batch_latency(self, session: Session) -> np.ndarray:
        """Return the latency per kind and batch size, as far as all kinds know it.   # (K, B+1) s."""
        profiles = self._profiles(session)
        limits = [profile.known for profile in profiles if profile.known is not None]
        useful = max(profile.largest_batch(session.slo) for profile in profiles)
        return _table(profiles, min([useful, *limits, session.max_batch or useful]))

    def capping_kind(self, session: Session) -> tuple[str, int, str] | None:
        """Return which kind of accelerators keeps a session's batches small on all others.

        The largest batch in the shortest table of execution times is the largest on every kind.

        Returns:
            The kind with that table, its largest batch, and the first kind on which a larger one would be in
            time; None if there is no such kind.
        """
        profiles = dict(zip(self.kinds, self._profiles(session), strict=True))
        known = {kind: profile.known for kind, profile in profiles.items() if profile.known is not None}
        if not known:
            return None
        shortest = min(known, key=known.__getitem__)
        more = known[shortest] + 1
        if session.max_batch is not None and session.max_batch < more:
            return None
        for kind, profile in profiles.items():
            if not profile.unknown(more, more) and profile.latency(np.array([more]))[0] <= session.slo:
                return shortest, known[shortest], kind
        return None

    def request_latency(self, session: Session, sizes: SizeDistribution | None) -> np.ndarray:
        """Return the latency per kind and size of a request, up to the largest size.   # (K, S+1) s."""
        return _table(self._profiles(session), 1 if sizes is None else sizes.largest)

    def offers(self, session: Session, sizes: SizeDistribution | None) -> Offers | None:
        """Return what the catalogue's types offer for a session; None if it needs none of its profiles.

        Raises:
            InvalidInput: A profile does not hold all the sizes that come.
        """
        if sizes is not None and session.model is None:
            for kind, profile in zip(self.kinds, self._profiles(session), strict=True):
                if problem := profile.unknown(sizes.smallest, sizes.largest):
                    fix = "measure the missing sizes, or give alpha_ms and beta_ms"
                    raise InvalidInput(f"profile of {session.name} on {kind}", problem, fix)
        if self.rental is None or session.model is None or sizes is None:
            return None
        return make_offers(self.rental.types, session.model, sizes)

    def _profiles(self, session: Session) -> list[ExecutionProfile]:
        if session.model is not None and self.rental is not None:
            return [kind.profile[session.model] for kind in self.rental.types]
        return [session if session.profiles is None else session.profiles[kind] for kind in self.kinds]


def _table(profiles: Sequence[ExecutionProfile], largest: int) -> np.ndarray:
    sizes = np.arange(1, largest + 1)
    return np.stack([np.concatenate(([0.0], profile.latency(sizes))) for profile in profiles])
