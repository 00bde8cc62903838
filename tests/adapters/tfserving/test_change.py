"""A change of parameters and threads together: what becomes of the first if the second fails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.knobs import knob_space
from tuner.adapters.tfserving.metrics import Buckets
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut, Unreachable
from tuner.knobs import Configuration


class Part:
    """The knobs of versions or of threads; ``fails`` are the errors of its changes, None if one succeeds."""

    def __init__(self, *fails: AdapterError | None) -> None:
        self.fails = list(fails)
        self.written: list[Mapping[str, float]] = []
        self.limit, self.splits = 8, False

    def read(self, names: Iterable[str]) -> dict[str, float]:
        known = self.written[-1] if self.written else {}
        return {name: known.get(name, 1.0) for name in names if name == "max_batch_size"}

    def write(self, wanted: Mapping[str, float]) -> None:
        self.written.append(wanted)
        if self.fails and (failure := self.fails.pop(0)) is not None:
            raise failure


class Backend(TFServingBackend):
    """One whose server need not be there."""

    def __init__(self, versions: Part, threads: Part) -> None:
        parts: Any = versions, threads
        self._version_knobs, self._thread_knobs = parts
        self._rows, self._lowest, self._splits_requests = 1, math.inf, False
        running = {"max_batch_size": 1.0, "batch_timeout": 0.0}
        self._space = knob_space({}, running, versions=True, restart=False, limit=8, rows=1, cores=2)


RUNNING = Configuration(max_batch_size=1, batch_timeout=0)
UNLUCKY = "seven threads are unlucky"


@pytest.mark.parametrize("size", [1, 8])
def test_parameters_go_back_only_if_they_were_changed(size: int) -> None:
    """Else a version would be published that nobody needs."""
    versions, threads = Part(), Part(Refused(UNLUCKY))
    wanted = RUNNING.replace(max_batch_size=size)

    with pytest.raises(Refused, match=UNLUCKY):
        Backend(versions, threads)._change(RUNNING, wanted)
    assert versions.written == ([] if size == 1 else [wanted, RUNNING])


@pytest.mark.parametrize(("refusal", "kind"), [(Refused, AdapterError), (TimedOut, TimedOut)])
def test_the_reason_is_kept_if_going_back_fails(refusal: type[AdapterError], kind: type) -> None:
    """Then the server is not as before, which a refusal would say."""
    versions, threads = Part(None, Unreachable("it is away")), Part(refusal(UNLUCKY))

    with pytest.raises(AdapterError, match=rf"{UNLUCKY}; going back .* failed, too: it is away") as found:
        Backend(versions, threads)._change(RUNNING, RUNNING.replace(max_batch_size=8))
    assert found.type is kind


def test_what_the_operator_deploys_may_have_another_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And may split large requests, which no limit is too low for, or no longer."""
    versions = Part()
    backend = Backend(versions, Part())
    rows = Buckets(np.array([64.0, 128.0]), np.array([0, 2]), 131.0)
    monkeypatch.setattr(backend, "_page", lambda: SimpleNamespace(rows=rows, others=0))
    backend._thread_knobs = None
    versions.limit, versions.splits = 64, True

    backend._running(["max_batch_size"])

    assert (backend._kind_of("max_batch_size").most, backend._splits_requests) == (64, True)
    assert backend._largest_request(RUNNING) == 1


@pytest.mark.parametrize(("bound", "others"), [(4.0, 0), (64.0, 9)])
def test_a_limit_that_serves_can_stay_and_come_back(
    bound: float, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of requests with 4 to 7 rows, 11 together, one may have had 7; those to other models may have more."""
    backend = Backend(Part(), Part())
    rows = Buckets(np.array([bound, 2 * bound, np.inf]), np.array([0, 2, 0]), 2 * bound + 3)
    monkeypatch.setattr(backend, "_page", lambda: SimpleNamespace(rows=rows, others=others))
    six = Configuration(max_batch_size=6, batch_timeout=0.0)

    backend._check_rows(six, six.replace(batch_timeout=0.002))
    backend._check_rows(six.replace(max_batch_size=1), six)
    with pytest.raises(InvalidInput, match="4 is below 6"):
        backend._check_rows(six, six.replace(max_batch_size=4))
