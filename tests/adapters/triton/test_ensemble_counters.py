"""What an ensemble counts, and what a metrics page does not say, by pages that are made up."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.triton.test_deployed_anew import CACHED
from tests.adapters.triton.test_limits import Server, serving
from tuner.adapters.triton import backend
from tuner.adapters.triton.opening import open_model

TARGET = "triton://127.0.0.1:1/pipe?metrics=2"
MODELS = {
    "pipe": 'ensemble_scheduling { step [{ model_name: "p" }, { model_name: "q" }] }',
    "p": "max_batch_size: 8",
    "q": "max_batch_size: 8",
}


def showing(monkeypatch: pytest.MonkeyPatch, *lines: str, **models: str) -> None:
    """Have a server show a page; its models are an ensemble and two others unless said otherwise."""
    serving(monkeypatch, **(models or MODELS))
    page = "".join(f"{line}\n" for line in lines)
    monkeypatch.setattr(backend, "metrics_page", lambda *_: SimpleNamespace(fetch=lambda _: page))


def waiting(model: str, count: int) -> str:
    return f'nv_inference_pending_request_count{{model="{model}",version="1"}} {count}'


@pytest.mark.parametrize(
    ("lines", "pending"),
    [
        ([waiting("pipe", 0), waiting("p", 3), waiting("q", 4), waiting("r", 9)], 4),
        ([waiting("pipe", 0), waiting("q", 4)], 4),
        ([waiting("pipe", 0)], None),
    ],
)
def test_what_waits_for_a_model_waits(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], pending: float | None
) -> None:
    """Triton calls no request of the ensemble itself pending: it begins to execute at once.

    One of the ensemble may wait for both models at once.
    """
    showing(monkeypatch, *lines)

    with closing(open_model(TARGET, {})) as ensemble:
        assert ensemble.counters().pending == pending


def test_an_ensembles_metrics_have_a_version_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton labels them with 1, whatever the ensemble's version is."""
    showing(monkeypatch, 'nv_inference_request_summary_us{model="pipe",version="1",quantile="0.5"} 9')

    with closing(open_model(f"{TARGET}&version=7", {})) as ensemble:
        assert ensemble.describe().quantiles
        assert ensemble.counters().quantiles == {0.5: 9e-6}


@pytest.mark.parametrize(("cache", "advice"), [("", "summary_latencies=true"), (CACHED, "give --rate")])
def test_who_can_tell_quantiles(monkeypatch: pytest.MonkeyPatch, cache: str, advice: str) -> None:
    """With a response cache Triton exports none of the whole latency, whatever its flags are."""
    showing(monkeypatch, pipe=f"max_batch_size: 8 {cache}")

    with closing(open_model(TARGET, {})) as model:
        (note,) = [note for note in model.describe().notes if "latenc" in note]

    assert advice in note


def test_a_model_whose_name_begins_like_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own knobs, and its own grids."""
    steps = 'ensemble_scheduling { step [{ model_name: "p" }, { model_name: "p.q" }] }'
    showing(monkeypatch, pipe=steps, p="max_batch_size: 8", **{"p.q": "max_batch_size: 8"})

    with closing(open_model(TARGET, {"p.q.instances": (1.0, 3.0)})) as ensemble:
        grids = {knob.name: knob.grid for knob in ensemble.space.knobs}
        ensemble.apply(ensemble.current())

    assert len(grids) == 6
    assert grids["p.q.instances"] == (1.0, 3.0) != grids["p.instances"]


@pytest.mark.parametrize(("model", "writable"), [("pipe", True), ("q", False)])
def test_fields_that_are_not_known_here(monkeypatch: pytest.MonkeyPatch, model: str, writable: bool) -> None:
    """A change would lose those of a model; the ensemble itself is never changed."""
    showing(monkeypatch)
    asked = Server.get_model_config

    def with_more(server: Server, name: str, *args: Any, **more: Any) -> Any:
        answer = asked(server, name, *args, **more)
        if name == model:
            answer.config.MergeFromString(b"\xfa\x3f\x01x")  # field 1023
        return answer

    monkeypatch.setattr(Server, "get_model_config", with_more)

    with closing(open_model(TARGET, {})) as ensemble:
        described = ensemble.describe()

    assert described.writable == writable
    assert described.notes[0].startswith("q: the model's configuration has fields") != writable
