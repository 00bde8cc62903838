"""Says where the penalty of Kairos does not keep requests from instances on which they are late.

Equation 8 weighs the penalty as it weighs a time: by ``C_j``, the time of the largest request on the fastest
type over that on type j. So a late request costs ``penalty C_j`` SLOs there, and one that ends in time on the
fastest type as many SLOs as it takes. Where type j is more than ``penalty`` times as slow, the first is less
than the second can be, and requests are sent there to be late although a fast instance could serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.cluster.scenario.options import make_options

__all__ = ["penalty_note"]


def penalty_note(
    session: str,
    latency: Mapping[str, float],
    slo: float,
    items: int,
    options: Mapping[str, Any],
    *,
    named: bool = True,
) -> str | None:
    """Return the type on which being late costs least, and what to write; None if the penalty is enough.

    Args:
        session: Its name.
        latency: Execution time of the largest request by type, s.
        slo: Of the session, s.
        items: Size of that request.
        options: Of ``kairos``, as the file gives them.
        named: Whether the file names ``kairos``: without that its options do not count.
    """
    penalty = make_options("kairos", dict(options)).penalty
    fast, slow = min(latency, key=latency.__getitem__), max(latency, key=latency.__getitem__)
    ratio = latency[slow] / latency[fast]
    if ratio <= penalty or latency[slow] <= slo or latency[fast] > slo:
        return None
    named_there = "" if named else "policy: kairos, "
    return (
        f"{slow} takes {ratio:.3g} times as long as {fast} for {items} items of {session}, more than the "
        f"penalty of kairos, {penalty:g}: a request that would end on {fast} after {penalty / ratio:.0%} of "
        f"the SLO or later is rather sent to {slow}, also where it is late; for fewer late requests write "
        f"{named_there}options: {{penalty: {round(10 * ratio, -1):g}}}"
    )
