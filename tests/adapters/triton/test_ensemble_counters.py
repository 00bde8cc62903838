"""What an ensemble counts, by pages and statistics that are made up."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.adapters.triton.test_limits import serving
from tuner.adapters.triton import backend
from tuner.adapters.triton.opening import open_model

TARGET = "triton://127.0.0.1:1/pipe?metrics=2"
MODELS = {
    "pipe": 'ensemble_scheduling { step [{ model_name: "p" }, { model_name: "q" }] }',
    "p": "max_batch_size: 8",
    "q": "max_batch_size: 8",
}


def showing(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have a server with an ensemble of two models show a page."""
    serving(monkeypatch, **MODELS)
    page = "".join(f"{line}\n" for line in lines)
    monkeypatch.setattr(backend, "metrics_page", lambda *_: SimpleNamespace(fetch=lambda _: page))


def waiting(model: str, count: int) -> str:
    return f'nv_inference_pending_request_count{{model="{model}",version="1"}} {count}'


@pytest.mark.parametrize(
    ("lines", "pending"),
    [
        ([waiting("pipe", 0), waiting("p", 3), waiting("q", 4), waiting("r", 9)], 7),
        ([waiting("pipe", 0), waiting("q", 4)], 4),
        ([waiting("pipe", 0)], None),
    ],
)
def test_what_waits_for_a_model_waits(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], pending: float | None
) -> None:
    """Triton calls no request of the ensemble itself pending: it begins to execute at once."""
    showing(monkeypatch, *lines)

    with closing(open_model(TARGET, {})) as ensemble:
        assert ensemble.counters().pending == pending
