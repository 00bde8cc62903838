"""What opening an ensemble opens and, if that fails, closes; with models that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.builders import SPACE
from tuner.adapters.backend import Description
from tuner.adapters.triton import ensemble
from tuner.adapters.triton.configuration import MAX_BATCH_SIZE, model_limit
from tuner.adapters.triton.ensemble import EnsembleBackend
from tuner.adapters.triton.knobs import knob_space
from tuner.errors import InvalidInput, Unreachable
from tuner.knobs import MAX_SIZE, Grids

Step = tuple[str, int]


def composed(*steps: Step, limit: int = 0) -> dict[str, Any]:
    """Return the configuration of an ensemble of models and their versions, as a server returns it."""
    step = [{"model_name": name, "model_version": str(version)} for name, version in steps]
    return {"ensemble_scheduling": {"step": step}, "max_batch_size": limit}


class Server:
    """Models by name, and what was opened and closed of them.

    Args:
        target: The ensemble.
        configs: The configurations of the ensemble and of its models, which have the knobs of theirs; without
            one, a model has one knob.
    """

    def __init__(self, target: str, **configs: dict[str, Any]) -> None:
        self.target, self.configs = target, configs
        self.knobs = SPACE.knobs[:1]
        self.compute: dict[str, float] = {}
        self.opened: dict[str, str] = {}
        self.closed: set[str] = set()
        self.undeployed: set[str] = set()

    def open(self, target: str, grids: Grids) -> Any:
        """Open a model in place of the adapter."""
        name = urlsplit(target).path.strip("/")
        self.opened[name] = target
        if config := self.configs.get(name):
            self.knobs = knob_space(config, grids, cores=2).knobs
        return self.model(name)

    def model(self, name: str) -> Any:
        """Return a model, or the ensemble."""
        return SimpleNamespace(
            original=self.configs.get(name, {}),
            space=SimpleNamespace(knobs=self.knobs, names=[knob.name for knob in self.knobs]),
            lifetime_compute=self.compute.get(name, 0.0),
            load_timeout=60.0,
            unknown_fields="",
            current=dict,
            batch_limit=lambda: max(1, model_limit(self.configs[name])),
            check=lambda _: None,
            config_of=self.config_of,
            describe=self.describe,
            close=lambda: self.closed.add(name),
        )

    def config_of(self, model: str) -> dict[str, Any]:
        """Return the configuration of a model that is deployed."""
        if model in self.undeployed:
            raise Unreachable(f"h:8001 no longer serves '{model}'")
        return self.configs.get(model, {})

    def describe(self) -> Description:
        """Say who this is, as the ensemble does."""
        return Description(
            target=self.target, server="triton", version="2", model="pipe", writable=True, quantiles=False
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


def test_it_says_which_models_it_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with knobs: a stateful one is left as it is."""
    stateful = {"sequence_batching": {}, "instance_group": [{"name": "s", "count": 1, "kind": "KIND_CPU"}]}
    server = Server("triton://h:8001/pipe", pipe=composed(("p", -1), ("s", -1)), s=stateful)

    assert opened(server, monkeypatch).describe().turns == ("p",)


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


def test_ordinary_models_make_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; what was left out is said, and how to choose."""
    names = [f"m{number}" for number in range(8)]
    server = Server("triton://h:8001/pipe", pipe=composed(*[(name, -1) for name in names]))
    server.knobs = knob_space({"max_batch_size": 64, "instance_group": [{"count": 1}]}, {}, cores=8).knobs
    server.compute = {"m5": 9.0}

    backend = opened(server, monkeypatch)

    assert backend.space.size <= MAX_SIZE
    assert [name.partition(".")[0] for name in backend.space.names] == [
        name for name in names for _ in range(3)
    ]
    turned = {knob.name.partition(".")[0] for knob in backend.space.knobs if len(knob.grid) > 1}
    assert turned == {"m5", "m0", "m1", "m2"}  # that computes most, and of those alike the first
    (note,) = [note for note in backend.describe().notes if "left out" in note]
    assert "m0.max_batch_size 2 4 16, m0.max_queue_delay 1ms 2ms 10ms, m0.instances 2, m1." in note
    assert "what computes least keeps what it runs: m3, m4, m6, m7;" in note
    assert "--knob MODEL.KNOB=" in note


def test_two_models_keep_their_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out where all fits, and nothing is said."""
    server = Server("triton://h:8001/pipe", pipe=composed(("p", -1), ("q", -1)))
    server.knobs = SPACE.knobs

    backend = opened(server, monkeypatch)

    assert [knob.grid for knob in backend.space.knobs] == [knob.grid for knob in SPACE.knobs] * 2
    assert backend.describe().notes == ("an ensemble of p, q",)


def test_grids_of_the_operators_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named, before any model is opened."""
    server = Server("triton://h:8001/pipe", pipe=composed(("p", -1), ("q", -1)))
    many = tuple(map(float, range(1001)))

    with pytest.raises(InvalidInput, match=r"^knobs p\.a, q\.b: their grids have 1002001 combinations"):
        opened(server, monkeypatch, {"p.a": many, "q.b": many, "q.c": (1.0,)})

    assert server.opened == {}
    assert server.closed == {"pipe"}


def test_too_many_for_one_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which."""
    server = Server("triton://h:8001/pipe", pipe=composed(("p", -1)))

    def refuse(*_: Any) -> None:
        raise InvalidInput("knobs", "1400000 configurations are more than 1000000", "use coarser grids")

    monkeypatch.setattr(server, "open", refuse)

    with pytest.raises(InvalidInput, match=r"^knobs of p: 1400000 configurations"):
        opened(server, monkeypatch)


def test_a_model_with_a_scheduler_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stateful model is left alone, and that is said; the others of its ensemble are not."""
    stateful = {"max_batch_size": 8, "sequence_batching": {}, "instance_group": [{"count": 1}]}
    plain = {"max_batch_size": 8, "instance_group": [{"count": 1}]}
    server = Server("triton://h:8001/pipe", pipe=composed(("s", -1), ("p", -1)), s=stateful, p=plain)

    backend = opened(server, monkeypatch)

    assert backend.space.names == ("p.max_batch_size", "p.max_queue_delay", "p.instances")
    assert [note for note in backend.describe().notes if note.startswith("s: ") and "sequences" in note]


def test_a_model_of_an_ensemble_in_an_ensemble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compares it with the ensemble that names it, which may take larger batches than the other."""
    server = Server(
        "triton://h:8001/pipe",
        pipe=composed(("inner", -1), ("p", -1), limit=4),
        inner=composed(("m", -1), limit=16),
        m={"max_batch_size": 32, "instance_group": [{"count": 1}]},
        p={"max_batch_size": 32, "instance_group": [{"count": 1}]},
    )

    backend = opened(server, monkeypatch)

    grids = {knob.name: knob.grid for knob in backend.space.knobs}
    assert grids["m.max_batch_size"] == (1, 16, 32)
    assert grids["p.max_batch_size"] == (1, 4, 8, 16, 32)
    with pytest.raises(
        InvalidInput, match=r"knob m\.max_batch_size: 8 is below 16, the max_batch_size of an"
    ):
        opened(server, monkeypatch, {f"m.{MAX_BATCH_SIZE}": (1.0, 8.0)})
    sixteen = backend.space.default.replace(**{"m.max_batch_size": 16, "p.max_batch_size": 4})
    backend.check(sixteen)
    server.configs["inner"] = composed(("m", -1), limit=32)  # it is deployed anew
    with pytest.raises(InvalidInput, match="16 is below 32"):
        backend.check(sixteen)
    server.undeployed = {"inner"}  # the outer one goes on without it
    backend.check(sixteen)
