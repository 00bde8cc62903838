"""Changes of an ensemble that fail at one of its models, with models that are made up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import SPACE, configuration
from tuner.adapters.backend import ApplyReport
from tuner.adapters.triton import ensemble
from tuner.adapters.triton.ensemble import EnsembleBackend
from tuner.errors import AdapterError, InvalidInput, Refused, StorageError, TimedOut, TunerError, Unreachable
from tuner.knobs import ApplyCost, Configuration, KnobSpace

OLD, NEW = configuration(1), configuration(2)
MODELS = ("p", "q", "r")


class Model:
    """A model on Triton, or the ensemble itself."""

    original: dict[str, Any] = {  # noqa: RUF012
        "ensemble_scheduling": {"step": [{"model_name": name} for name in MODELS]}
    }
    space = SPACE
    lifetime_compute = 0.0
    limit = 1

    def __init__(self) -> None:
        self.running = OLD
        self.objects: TunerError | None = None
        self.fails: dict[Configuration, TunerError] = {}  # by what it is to run
        self.serves = True
        self.asked: list[Configuration] = []
        self.heard: list[Configuration] = []

    def describe(self) -> Any:
        return SimpleNamespace(target="triton://h:1/both")

    def config_of(self, model: str) -> dict[str, Any]:
        return {}

    def current(self) -> Configuration:
        return self.running

    def hear_of(self, configurations: Collection[Configuration]) -> None:
        self.heard += configurations

    def check(self, wanted: Configuration) -> None:
        if self.objects is not None:
            raise self.objects

    def apply(self, wanted: Configuration) -> ApplyReport:
        self.asked.append(wanted)
        if wanted in self.fails:
            raise self.fails[wanted]
        changed, self.running = wanted != self.running, wanted
        return ApplyReport(
            configuration=wanted, changed=changed, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5
        )

    def batch_limit(self) -> int:
        return self.limit

    def restore(self) -> None:
        self.running = OLD

    def ready(self) -> bool:
        return self.serves

    def sample(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def models() -> dict[str, Model]:
    return {name: Model() for name in ("both", *MODELS)}


@pytest.fixture
def backend(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> EnsembleBackend:
    monkeypatch.setattr(ensemble, "TritonBackend", lambda target, _: models[target.rpartition("/")[2]])
    whole: Any = models["both"]
    return EnsembleBackend(whole, load_timeout=0.0)


def every(own: Configuration) -> Configuration:
    """What the ensemble runs if each of its models runs this."""
    return Configuration({f"{name}.{knob}": value for name in MODELS for knob, value in own.items()})


@pytest.mark.parametrize(
    "error",
    [Refused("no"), InvalidInput("knob x", "below 8 rows"), StorageError("disk full"), AdapterError("odd")],
)
def test_whatever_fails_all_go_back(
    backend: EnsembleBackend, models: dict[str, Model], error: TunerError
) -> None:
    """Not only what the server refuses."""
    models["q"].fails[NEW] = error

    with pytest.raises(Refused, match=f"q: {error}; all models of the ensemble run as before"):
        backend.apply(every(NEW))

    assert backend.current() == every(OLD)
    assert models["r"].asked == []


def test_a_model_whose_knobs_have_one_value_each_is_set_to_them_with_every_change(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is turned, too: what somebody else sets of it is undone."""
    fixed = [replace(knob, grid=(OLD[knob.name],), default=OLD[knob.name]) for knob in SPACE.knobs]
    monkeypatch.setattr(models["p"], "space", KnobSpace(fixed))
    monkeypatch.setattr(ensemble, "TritonBackend", lambda target, _: models[target.rpartition("/")[2]])
    whole: Any = models["both"]
    backend = EnsembleBackend(whole, load_timeout=0.0)
    models["p"].running = NEW

    backend.apply(backend.space.nearest(every(NEW)))

    assert {name: models[name].running for name in MODELS} == {"p": OLD, "q": NEW, "r": NEW}


@pytest.mark.parametrize("error", [TimedOut("it may still do so"), Unreachable("no answer")])
def test_what_may_come_about_later_is_no_refusal(
    backend: EnsembleBackend, models: dict[str, Model], error: TunerError
) -> None:
    """The others go back, the model itself is asked to, and the caller knows that it is not known."""
    models["q"].fails[NEW] = error

    with pytest.raises(type(error), match=rf"q: {error}; not certain to run as before: q$"):
        backend.apply(every(NEW))

    assert models["p"].running == OLD
    assert models["q"].asked == [NEW, OLD]


def test_one_that_does_not_go_back_keeps_no_other_from_it(
    backend: EnsembleBackend, models: dict[str, Model]
) -> None:
    """Nor is the change a refusal then."""
    models["r"].fails[NEW] = Refused("no")
    models["p"].fails[OLD] = Refused("out of memory")

    with pytest.raises(AdapterError, match=r"r: no; not certain .*: p \(out of memory\)$") as caught:
        backend.apply(every(NEW))

    assert not isinstance(caught.value, Refused)
    assert [models[name].running for name in MODELS] == [NEW, OLD, OLD]


def test_an_ensemble_that_does_not_serve_again(backend: EnsembleBackend, models: dict[str, Model]) -> None:
    """Its models go back; whether that helped is said."""
    models["both"].serves = False

    with pytest.raises(AdapterError, match=r"p: .* did not serve again .*: the ensemble$") as caught:
        backend.apply(every(NEW))

    assert not isinstance(caught.value, Refused)
    assert backend.current() == every(OLD)


def test_all_are_asked_before_one_is_changed(backend: EnsembleBackend, models: dict[str, Model]) -> None:
    """What is known beforehand costs no reload; the error names the knob as it is in the ensemble."""
    models["r"].objects = InvalidInput("knob max_batch_size", "2 is below 8")

    with pytest.raises(InvalidInput, match=r"knob r\.max_batch_size: 2 is below 8"):
        backend.apply(every(NEW))

    assert [models[name].asked for name in MODELS] == [[], [], []]


def test_an_ensemble_that_is_deployed_anew_with_a_larger_limit(
    backend: EnsembleBackend, models: dict[str, Model]
) -> None:
    """What was large enough when it was opened would end it now."""
    backend.apply(every(NEW))
    models["both"].limit = 4

    with pytest.raises(InvalidInput, match=r"knob p\.max_batch_size: 2 is below 4, the max_batch_size"):
        backend.apply(every(NEW))

    assert backend.apply(every(configuration(8))).changed


def test_what_would_end_an_ensemble_is_not_put_back(
    backend: EnsembleBackend, models: dict[str, Model]
) -> None:
    """The other models get back what they ran."""
    backend.apply(every(NEW))
    models["both"].limit = 4
    models["q"].original = {"max_batch_size": 2, "dynamic_batching": {}}

    with pytest.raises(Refused, match=r"is not put back: knob q\.max_batch_size: 2 is below 4"):
        backend.restore()

    assert [models[name].running for name in MODELS] == [OLD, NEW, OLD]


def test_each_model_hears_of_its_own_part_of_what_other_replicas_run(
    models: dict[str, Model], backend: EnsembleBackend
) -> None:
    backend.hear_of([backend.current()])

    assert [models[name].heard for name in MODELS] == [[OLD]] * 3
