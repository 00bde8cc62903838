"""Batch limits below the rows of some requests: a server would refuse those, and count them nowhere."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from tritonclient.grpc import service_pb2

from tests.adapters.triton.test_deployed_anew import MODEL, Loading
from tests.adapters.triton.test_limits import TARGET
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.adapters.triton.backend import TritonBackend
from tuner.errors import InvalidInput

MOSTLY_ONE = {"requests": 100, "inferences": 175, "executions": {1: 60, 16: 5}}


class Counting(Loading):
    """A server with statistics; a reload has them begin anew."""

    counted: dict[str, Any] | None = None

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        response = service_pb2.ModelStatisticsResponse()
        if self.counted is not None:
            stats = response.model_stats.add(name="mlp", version="1")
            stats.inference_stats.success.count = self.counted["requests"]
            stats.inference_count = self.counted["inferences"]
            for size, count in self.counted["executions"].items():
                stats.batch_stats.add(batch_size=size).compute_infer.count = count
        return response

    def unload_model(self, *_: Any, **__: Any) -> None: ...

    def load_model(self, model: str, config: str, **_: Any) -> None:
        super().load_model(model, config)
        self.counted = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Counting:
    server = Counting(MODEL.format(32))
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: server)
    return server


def test_a_few_large_requests_among_small_ones(server: Counting) -> None:
    """A batch may have been one of them, so no limit below the largest is set, however low the mean."""
    server.counted = MOSTLY_ONE
    with closing(TritonBackend(TARGET)) as backend:
        running = backend.current()

        assert backend.space.knobs[0].grid == (1, 16, 32)
        assert "clients' requests may have 16 rows" in backend.describe().notes[0]
        with pytest.raises(InvalidInput, match="4 is below 16, the rows that clients may send"):
            backend.apply(running.replace(max_batch_size=4))
        assert server.loaded == []
        assert backend.apply(running.replace(max_batch_size=1)).changed


def test_a_limit_that_ran_can_come_back(server: Counting) -> None:
    """Whatever batches a higher one let form."""
    with closing(TritonBackend(TARGET)) as backend:
        running = backend.current()
        backend.apply(running.replace(max_batch_size=8))
        backend.apply(running)
        server.counted = MOSTLY_ONE

        with pytest.raises(InvalidInput, match="4 is below 8"):
            backend.check(running.replace(max_batch_size=4))
        assert backend.apply(running.replace(max_batch_size=8)).changed
        assert "may have 8 rows" in backend.describe().notes[0]


def test_a_replica_that_joins_takes_the_limit_that_serves_the_same_clients_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it saw under its own higher limit may have been one large request, and was whole batches."""
    servers = {"127.0.0.1:1": Counting(MODEL.format(32)), "127.0.0.1:2": Counting(MODEL.format(32))}
    monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda address, **_: servers[address])
    present = [TARGET]
    with closing(ReplicaGroup(Membership("both", lambda: present, TritonBackend, refresh=0.0))) as group:
        eight = group.current().replace(max_batch_size=8)
        group.apply(eight)
        servers["127.0.0.1:2"].counted = MOSTLY_ONE
        present.append(TARGET.replace(":1/", ":2/"))

        with pytest.raises(InvalidInput, match="4 is below 8, the rows that clients may send"):
            group.apply(eight.replace(max_batch_size=4))
        assert group.apply(eight).changed
        assert group.configurations() == [eight, eight]


def test_requests_that_surely_have_more_rows_count_whatever_others_run(server: Counting) -> None:
    server.counted = {"requests": 10, "inferences": 160, "executions": {16: 10}}
    with closing(TritonBackend(TARGET)) as backend:
        eight = backend.current().replace(max_batch_size=8)
        with pytest.raises(InvalidInput, match="8 is below 16"):
            backend.check(eight)
        server.counted = None  # as after a reload
        backend.hear_of([eight])

        with pytest.raises(InvalidInput, match="8 is below 16"):
            backend.check(eight)


@pytest.mark.parametrize(("rule", "noted"), [("preserve_ordering: true", 1), ("preferred_batch_size: 4", 0)])
def test_a_batch_of_1_that_would_break_a_rule_of_the_operators(
    server: Counting, rule: str, noted: int
) -> None:
    """What he set for the dynamic batcher is named, and how to have it tried all the same."""
    server.configs["mlp"] = MODEL.format(32).replace("dynamic_batching { ", f"dynamic_batching {{ {rule} ")
    with closing(TritonBackend(TARGET)) as backend:
        notes = [note for note in backend.describe().notes if "would not heed" in note]

    assert len(notes) == noted
    assert all("preserve_ordering of the model's dynamic_batching" in note for note in notes)
