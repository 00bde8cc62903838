"""What opening an ensemble opens and, if that fails, closes; with models that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.builders import SPACE
from tuner.adapters.triton import ensemble
from tuner.adapters.triton.ensemble import EnsembleBackend
from tuner.errors import InvalidInput
from tuner.knobs import Grids

Step = tuple[str, int]


def composed(*steps: Step) -> dict[str, Any]:
    """Return the configuration of an ensemble of models and their versions, as a server returns it."""
    step = [{"model_name": name, "model_version": str(version)} for name, version in steps]
    return {"ensemble_scheduling": {"step": step}}


class Server:
    """Models by name, and what was opened and closed of them."""

    def __init__(self, target: str, **configs: dict[str, Any]) -> None:
        self.target, self.configs = target, configs
        self.knobs = SPACE.knobs[:1]
        self.opened: dict[str, str] = {}
        self.closed: set[str] = set()

    def open(self, target: str, _: Grids) -> Any:
        """Open a model in place of the adapter."""
        name = urlsplit(target).path.strip("/")
        self.opened[name] = target
        return self.model(name)

    def model(self, name: str) -> Any:
        """Return a model, or the ensemble."""
        return SimpleNamespace(
            original=self.configs.get(name, {}),
            space=SimpleNamespace(knobs=self.knobs),
            lifetime_compute=0.0,
            config_of=lambda model: self.configs.get(model, {}),
            describe=lambda: SimpleNamespace(target=self.target),
            close=lambda: self.closed.add(name),
        )

    def versions(self) -> dict[str, list[str]]:
        """Return the versions that the opened models were asked for."""
        return {
            name: parse_qs(urlsplit(target).query).get("version", []) for name, target in self.opened.items()
        }


def opened(server: Server, monkeypatch: pytest.MonkeyPatch, grids: Grids | None = None) -> EnsembleBackend:
    monkeypatch.setattr(ensemble, "TritonBackend", server.open)
    return EnsembleBackend(server.model("pipe"), grids)


def test_models_are_reached_as_the_ensemble_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its options, but for the version, which is its own and no model's."""
    server = Server("triton://h:8001/pipe?version=2&ca=/etc/ca.crt&metrics=off", pipe=composed(("p", -1)))

    opened(server, monkeypatch)

    assert server.opened == {"p": "triton://h:8001/p?ca=/etc/ca.crt&metrics=off"}


def test_a_model_has_the_version_that_the_ensemble_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is several, or the server's choice, the model is seen as a whole."""
    server = Server(
        "triton://h:8001/pipe?version=7",
        pipe=composed(("p", 3), ("q", 1), ("r", 1), ("r", 1), ("inner", 5), ("s", 0)),
        inner=composed(("q", 2), ("t", 10)),
    )

    opened(server, monkeypatch)

    assert server.versions() == {"p": ["3"], "q": [], "r": ["1"], "s": [], "t": ["10"]}


@pytest.mark.parametrize("twice", [1, 2])
def test_what_cannot_be_opened_is_closed(twice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ensemble and its models, if a grid is for no knob of theirs and if their knobs make no space."""
    server = Server("triton://h:8001/pipe", pipe=composed(("p", -1), ("q", -1)))
    server.knobs *= twice

    with pytest.raises(InvalidInput, match="knob"):
        opened(server, monkeypatch, {"p.colour": (1.0,)})

    assert server.closed == {"pipe", "p", "q"}
