"""An ensemble on Triton: clients send requests to the ensemble, and its models have the knobs.

The name of a knob begins with its model's: ``resnet.max_queue_delay``. Latencies and counts are those of the
ensemble, the wait is the sum of the waits for its models, and batches are those of the busiest model.

Real servers showed two things. A model's ``max_batch_size`` below that of an ensemble that names it loads
without an error and makes the whole ensemble unavailable, so such values are refused here. And every change
of a model reloads the ensemble, too, so that its statistics begin at 0 again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.live.meanwhile import read_meanwhile
from tuner.adapters.live.waiting import comes_true
from tuner.adapters.rollback import IN_DOUBT, UNTOUCHED, failure, put_back, restore_all
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.configuration import (
    MAX_BATCH_SIZE,
    is_ensemble,
    model_limit,
    read_configuration,
)
from tuner.adapters.triton.ensemble_grids import check_given, fitted, what_was_left_out
from tuner.adapters.triton.knobs import batch_sizes, below_ensemble, forms_batches, left_alone
from tuner.errors import AdapterError, InvalidInput, Refused, TunerError, UnknownModel, Unreachable
from tuner.knobs import Configuration, Grids, Knob, KnobSpace, Role
from tuner.printable import one_line
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["EnsembleBackend"]

MOST_MODELS = 100
"""Models and ensembles in an ensemble."""
T = TypeVar("T")


def _steps(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the models and ensembles that an ensemble names, in order, with their versions.

    A version is empty where the server chooses it, which a step says by a number below 1.
    """
    steps = config.get("ensemble_scheduling", {}).get("step", [])
    versions = [str(step.get("model_version", "")) for step in steps]
    return [
        (str(step.get("model_name", "")), version if version.strip("0").isdecimal() else "")
        for step, version in zip(steps, versions, strict=True)
    ]


class EnsembleBackend:
    """An ensemble as one backend, with the knobs of its models.

    Args:
        ensemble: The ensemble as one model; closed with this, and if this cannot be opened.
        grids: Grids in place of the default ones, by knob name (``MODEL.KNOB``).
        load_timeout: Longest wait for the ensemble to serve again after a change, s; that of the ensemble's
            target if None.

    Raises:
        InvalidInput: A grid is for no knob of its models, or the grids are too many configurations.
        AdapterError: The server cannot be asked.
    """

    def __init__(
        self, ensemble: TritonBackend, grids: Grids | None = None, *, load_timeout: float | None = None
    ) -> None:
        self._ensemble = ensemble
        self._timeout = ensemble.load_timeout if load_timeout is None else load_timeout
        self._members: dict[str, TritonBackend] = {}
        self._named_by: dict[str, set[str]] = {}  # the ensembles with each model; "" for the outermost
        try:
            self._open_all(grids or {})
        except BaseException:
            self.close()
            raise

    def _open_all(self, given: Grids) -> None:
        """Open the models, and make the space of their knobs."""
        check_given(given)
        models = self._models(self._ensemble.original)
        least = self._least()
        for name, version in models.items():
            self._members[name] = self._open(name, version, _own(name, given, models), least[name])
        knobs = {
            name: [_prefixed(name, knob) for knob in member.space.knobs]
            for name, member in self._members.items()
        }
        known = [knob.name for knob in chain(*knobs.values())]
        for name in given:
            if name not in known:
                hint = f"they have: {', '.join(known) or 'none'}"
                raise InvalidInput(f"knob {name}", "the ensemble's models have no such knob", hint)
        busiest = sorted(self._members, key=lambda name: -self._members[name].lifetime_compute)
        self._busiest = busiest[0]
        self.space = KnobSpace(fitted(knobs, self.current(), given, busiest[::-1]))
        self._left_out = what_was_left_out(knobs, self.space.knobs)

    def _models(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the models of an ensemble in order, those of ensembles inside it included.

        Each has the version that the ensemble uses; empty if the server chooses, or if it uses several.

        Raises:
            AdapterError: They are none or too many, or the server cannot be asked.
        """
        found: dict[str, str] = {}
        seen: set[str] = set()
        waiting = [("", *step) for step in _steps(config)]
        while waiting:
            ensemble, name, version = waiting.pop(0)
            self._named_by.setdefault(name, set()).add(ensemble)
            if name in seen:
                if name in found and found[name] != version:
                    found[name] = ""
                continue
            seen.add(name)
            if len(seen) > MOST_MODELS:
                raise AdapterError(f"the ensemble is made of more than {MOST_MODELS} models")
            inner = self._ensemble.config_of(name)
            if is_ensemble(inner):
                waiting = [(name, *step) for step in _steps(inner)] + waiting
            else:
                found[name] = version
        if not found:
            raise AdapterError("the ensemble is made of no models")
        return found

    def _least(self) -> dict[str, int]:
        """Return the least batch limit that each model may have, by how its ensembles are deployed now.

        Triton compares a model with each ensemble that names it, of which one may be in another one.
        """
        limits = {"": self._ensemble.batch_limit()}
        for name in set().union(*self._named_by.values()) - limits.keys():
            with suppress(Unreachable, UnknownModel):  # one that was undeployed since
                limits[name] = model_limit(self._ensemble.config_of(name))
        return {name: max(1, *(limits.get(each, 0) for each in by)) for name, by in self._named_by.items()}

    def _open(
        self, name: str, version: str, grids: dict[str, tuple[float, ...]], least: int
    ) -> TritonBackend:
        """Open a model of the ensemble; its grid has no batch limit below ``least``."""
        config = self._ensemble.config_of(name)
        if forms_batches(config):
            sizes = grids.get(MAX_BATCH_SIZE) or batch_sizes(config, least)
            if low := [size for size in sizes if 1 < size < least]:
                raise _too_small(name, low[0], least)
            grids = {**grids, MAX_BATCH_SIZE: sizes}
        try:
            return TritonBackend(_target_of(name, version, self._ensemble.describe().target), grids)
        except InvalidInput as error:
            if not error.setting.startswith("knob"):  # such as that the server does not serve the model
                raise
            raise _of_model(name, error) from None

    def endpoint(self) -> Endpoint:
        """Return how clients reach the ensemble."""
        return self._ensemble.endpoint()

    def describe(self) -> Description:
        """Return who this is and what it can do."""
        described = self._ensemble.describe()
        made_of = f"an ensemble of {', '.join(self._members)}"
        alone = tuple(
            f"{name}: {note}"
            for name, member in self._members.items()
            for note in left_alone(member.original, member.space.names)
        )
        # Also those whose knobs have one value each: every change sets them to it.
        turns = tuple(name for name, member in self._members.items() if member.space.names)
        unknown = [(name, self._members[name].unknown_fields) for name in turns]
        read_only = tuple(f"{name}: {why}" for name, why in unknown if why)
        notes = (*read_only, *described.notes, made_of, *alone, *self._left_out)
        writable = described.writable and not read_only
        return replace(described, writable=writable, notes=notes, without_knobs=alone, turns=turns)

    def current(self) -> Configuration:
        """Read from the server what its models run."""
        return Configuration(
            {
                f"{name}.{knob}": value
                for name, member in self._members.items()
                for knob, value in member.current().items()
            }
        )

    @property
    def deployed_anew(self) -> str:
        """Which of its models has another batch limit of its own than when it was opened; empty if none."""
        found = {name: member.deployed_anew for name, member in self._members.items()}
        return next((f"{one_line(name)}: {why}" for name, why in found.items() if why), "")

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the models that differ, one after the other; if one refuses, all go back."""
        self.check(configuration)
        begun = time.monotonic()
        before = {name: member.current() for name, member in self._members.items()}
        reports: dict[str, ApplyReport] = {}
        self._ensemble.sample()  # each change reloads the ensemble, which begins to count at 0 again
        for name, member in self._members.items():
            try:
                with read_meanwhile(self._ensemble.sample):
                    reports[name] = member.apply(Configuration(_own(name, configuration, self._members)))
                    if reports[name].changed:
                        self._wait_until_ready()
            except TunerError as error:
                last = () if isinstance(error, UNTOUCHED) else (name,)
                changed = {each: before[each] for each in (*reports, *last)}
                raise self._taken_back(changed, name, error) from error
        return ApplyReport.together(reports.values(), self.current(), seconds=time.monotonic() - begun)

    def _taken_back(self, before: Mapping[str, Configuration], name: str, error: TunerError) -> AdapterError:
        """Put models back after a change failed at one of them; return the error to raise.

        Args:
            before: What the models ran that may have been changed, by name.
            name: The model at which the change failed.
            error: The error that it raised.
        """
        doubtful = put_back(self._members, before)
        try:
            self._wait_until_ready()
        except AdapterError as late:
            doubtful["the ensemble"] = late
        if isinstance(error, IN_DOUBT):
            doubtful[name] = error
        return failure(f"{name}: {error}", doubtful, "all models of the ensemble run as before")

    def hear_of(self, configurations: Collection[Configuration]) -> None:
        """Learn what other servers run that the same clients send to, model by model."""
        for name, member in self._members.items():
            member.hear_of([Configuration(_own(name, other, self._members)) for other in configurations])

    def check(self, configuration: Configuration) -> None:
        """Raise what applying a configuration would raise at any model, before one is changed.

        Raises:
            InvalidInput: A knob is unknown or missing, or has an unusable value; names the model.
            ReadOnly: The server takes no changes.
            AdapterError: The server cannot be asked.
        """
        self.space.check_complete(configuration)
        least = self._least()  # an ensemble may have been deployed anew
        for name, member in self._members.items():
            own = Configuration(_own(name, configuration, self._members))
            size = own.get(MAX_BATCH_SIZE, 1.0)
            if 1 < size < least[name]:
                raise _too_small(name, size, least[name])
            try:
                member.check(own)
            except InvalidInput as error:
                raise _of_model(name, error) from None

    def _wait_until_ready(self) -> None:
        if not comes_true(self._ensemble.ready, self._timeout):
            raise AdapterError(f"the ensemble did not serve again within {self._timeout:g} s")

    def restore(self) -> None:
        """Put back exactly what was found at opening; each model is tried, whatever becomes of the others.

        Raises:
            AdapterError: Some models refuse, or would end an ensemble that was deployed anew, or the ensemble
                does not serve again.
        """
        self._ensemble.sample()
        least = self._least()
        sizes = {name: _batch_size(member.original) for name, member in self._members.items()}
        small = {
            name: _too_small(name, size, least[name])
            for name, size in sizes.items()
            if 1 < size < least[name]
        }
        with read_meanwhile(self._ensemble.sample):
            restore_all({name: member for name, member in self._members.items() if name not in small})
            self._wait_until_ready()
        if small:
            raise Refused(f"what was found is not put back: {'; '.join(map(str, small.values()))}")

    def counters(self) -> Counters:
        """Read the totals."""
        whole = self._ensemble.counters()
        each = {name: member.counters() for name, member in self._members.items()}
        busiest = each[self._busiest]
        # A request of the ensemble itself never waits for Triton, but those that it makes of its models do.
        # It may make several at once: only those that wait for the same model surely belong to several.
        waiting = [member.pending for member in each.values() if member.pending is not None]
        return replace(
            whole,
            queue=min(sum(member.queue for member in each.values()), whole.latency),
            compute=min(whole.compute, whole.latency),  # its models may execute one request at the same time
            batch_counts=busiest.batch_counts,
            batch_seconds=busiest.batch_seconds,
            pending=max(waiting) if waiting else None,
            gpus=tuple({gpu.uuid: gpu for member in each.values() for gpu in member.gpus}.values()),
        )

    def profile(self) -> BatchingProfile | None:
        """Return l(b) of the model that computes most."""
        counters = self.counters()
        return fit_profile(counters.batch_counts, counters.batch_seconds)

    def close(self) -> None:
        """Close all connections. May be called twice."""
        for backend in (self._ensemble, *self._members.values()):
            backend.close()


def _target_of(model: str, version: str, ensemble: str) -> str:
    """Return the target of a model: the ensemble's own, but for the version, which is another model's."""
    url = urlsplit(ensemble)
    options = [pair for pair in parse_qsl(url.query, keep_blank_values=True) if pair[0] != "version"]
    query = urlencode([*options, ("version", version)] if version else options, safe="/:")
    return urlunsplit(url._replace(path=f"/{quote(model)}", query=query))


def _batch_size(config: Mapping[str, Any]) -> float:
    return float(read_configuration(config, [MAX_BATCH_SIZE])[MAX_BATCH_SIZE])


def _too_small(model: str, size: float, least: int) -> InvalidInput:
    return below_ensemble(f"{model}.{MAX_BATCH_SIZE}", size, least)


def _prefixed(model: str, knob: Knob) -> Knob:
    idle = knob.idle_when
    return replace(
        knob,
        name=f"{model}.{knob.name}",
        role=Role.OTHER,  # it turns a part of what clients see, and several models have such a knob
        idle_when=(f"{model}.{idle[0]}", idle[1]) if idle is not None else None,
    )


def _of_model(model: str, error: InvalidInput) -> InvalidInput:
    """Return the error with the knob's name as it is in the ensemble."""
    if error.setting == "knobs":  # one model has too many
        setting = f"knobs of {model}"
    else:
        setting = error.setting.replace("knob ", f"knob {model}.", 1)
    return InvalidInput(setting, str(error).removeprefix(f"{error.setting}: "))


def _own(model: str, prefixed: Mapping[str, T], models: Iterable[str]) -> dict[str, T]:
    """Return what is a model's own, without its name before it.

    Another model's name may begin like it, as ``bert.v2`` beside ``bert``.
    """
    start = f"{model}."
    of_others = tuple(f"{other}." for other in models if other.startswith(start))
    return {
        name.removeprefix(start): value
        for name, value in prefixed.items()
        if name.startswith(start) and not name.startswith(of_others)
    }
