"""A model that is deployed anew while an adapter has it open."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.adapters.triton.test_limits import TARGET, serving
from tuner.adapters.triton.backend import TritonBackend
from tuner.errors import InvalidInput, Refused
from tuner.knobs import Configuration

MODEL = 'name: "mlp" max_batch_size: {} dynamic_batching {{ }} instance_group [{{ count: 1 kind: KIND_CPU }}]'


def test_its_new_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs now can be gone back to, and larger batches are refused."""
    server = serving(monkeypatch, mlp=MODEL.format(8))
    with closing(TritonBackend(TARGET)) as backend:
        server.configs["mlp"] = MODEL.format(32)
        found = backend.current()

        backend.check(found)

        assert found == Configuration(max_batch_size=32, max_queue_delay=0, instances=1)
        with pytest.raises(InvalidInput, match="not between 1 and 32"):
            backend.check(found.replace(max_batch_size=64))


def test_what_was_found_is_not_put_back_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that the new model takes would be refused."""
    server = serving(monkeypatch, mlp=MODEL.format(8))
    with closing(TritonBackend(TARGET)) as backend:
        server.configs["mlp"] = MODEL.format(32)

        with pytest.raises(Refused, match="deployed anew"):
            backend.restore()
