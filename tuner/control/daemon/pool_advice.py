"""Advice on the pool of instances behind a dispatcher: another one, when the load or the sizes ask for it.

The requests that a dispatcher sees drive a :class:`~tuner.planning.pools.replan.Replanner`. What that decides
is advice: nobody rents or stops an instance here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuner.adapters.traffic import SessionTraffic, Traffic
from tuner.errors import InvalidInput
from tuner.planning.pools.replan import PoolDecision, Replanner
from tuner.workload.sizes import LARGEST

__all__ = ["PoolAdvisor"]

LEAST_PAUSE = 20.0
"""s between two pieces of advice: making one takes some 0.2 s of a core."""


class PoolAdvisor:
    """Gives advice for one session of a dispatcher.

    Args:
        file: A scenario as ``tuner plan instances`` reads it, with the ``instances`` that run.
        seed: Of the order in which requests of a window are taken to have come.

    Raises:
        InvalidInput: The file has a mistake, or lacks something that a plan needs.
    """

    def __init__(self, file: Path, seed: int = 0) -> None:
        from tuner.cluster.scenario import Scenario
        from tuner.files.yaml_file import load_yaml
        from tuner.planning.pools.planner import make_order

        scenario = load_yaml(file, Scenario, use="plan")
        order = make_order(scenario)
        if scenario.rented is None:
            problem, fix = "does not say which instances run", "add `instances:`"
            raise InvalidInput(str(file), problem, fix)
        self.session = order.session.name
        """The session that the advice is for."""
        self.latest: PoolDecision | None = None
        """The latest advice."""
        self._replanner = Replanner(
            order.session, order.types, order.budget, scenario.rented, planned=order.sizes
        )
        self._random = np.random.default_rng(seed)
        self._seen = self._asked = -np.inf  # s on the dispatcher's clock

    def observe(self, traffic: Traffic) -> str:
        """Take in what a dispatcher saw; return the advice in a sentence, empty if it is that from before.

        Raises:
            InvalidInput: No pool within the budget can serve the sizes that come.
        """
        found = [one for one in traffic.sessions if one.name == self.session]
        if traffic.ended < self._seen:  # its machine has restarted
            self._seen = self._asked = -np.inf
            self._replanner.clock_restarted()
        if not found or traffic.ended == self._seen:
            return ""
        self._seen = traffic.ended
        items = self._sizes(found[0])
        if found[0].rate > 0 and not items.size:  # no backend was up: what came is not known, and no lull
            self._replanner.clock_restarted()
            return ""
        self._replanner.observe_window(traffic.ended - traffic.seconds, traffic.ended, items)
        if traffic.ended - self._asked < LEAST_PAUSE:
            return ""
        self._asked = traffic.ended
        before = (self.latest.do, self.latest.pool) if self.latest else ("keep", self._replanner.pool)
        self.latest = self._replanner.decide(traffic.ended)
        same = before == (self.latest.do, self.latest.pool)
        return "" if same else self.latest.sentence

    def _sizes(self, session: SessionTraffic) -> np.ndarray:
        """Return the sizes of the requests of a window in random order.   # (n,)."""
        items = np.repeat(list(session.sizes), list(session.sizes.values()))
        self._random.shuffle(items)
        return np.asarray(np.minimum(items, LARGEST), np.int64)
