"""A pretended TensorFlow Serving with its operator, its clients and its tuners, and what must hold there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.tfserving.sequences.operator import MODEL, Operator
from tests.adapters.tfserving.test_metrics import PAGE
from tests.adapters.world import Killed, World
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.batching import parse_batching, read_batching
from tuner.adapters.tfserving.metrics import parse_metrics
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused
from tuner.knobs import Configuration

__all__ = ["Bed"]

POLICIES = ("", "", "specific", "all { }", "latest { num_versions: 4 }", "latest { num_versions: 3 }")


class Bed:
    """A server, its operator, and tuners."""

    def __init__(self, seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = rng = random.Random(seed)
        policy = rng.choice(POLICIES)
        label = "stable" if policy and rng.random() < 0.7 else ""
        self.operator = Operator(rng, root, policy, label)
        self.server = self.operator.start(polls=rng.random() < 0.4)
        self.world = World(rng, root, self.server.advance)
        self.world.others = self._others
        self.journal = self.world.journal = self.operator.journal
        self.journal.append(f"policy {policy!r}, label {label!r}, polls {self.server._polls}")
        self.root = root
        self.busy = 0.0
        """How likely the operator acts at a step."""
        self.lost: list[str] = []
        bed = self

        class Client:
            def versions(self) -> Any:
                bed.world.point("versions", writes=False)
                return bed.server.states(MODEL)

            def labelled(self, label: str) -> int:
                bed.world.point("labelled", writes=False)
                return bed.server.labelled(MODEL, label)

            def standing(self, label: str) -> int | None:
                bed.world.point("standing", writes=False)
                return bed.server.standing(MODEL, label)

            def reload(self, config: Any, timeout: float) -> None:
                bed.world.point("reload", writes=False)
                bed.server.reload(config)
                bed.world.point("reloaded", writes=False)

            def close(self) -> None: ...

        class Backend(TFServingBackend):
            def _connect(self) -> Any:
                return Client()

            def _page(self) -> Any:
                bed.world.point("page", writes=False)
                bed.server.check()
                return parse_metrics(PAGE, MODEL)

            def _processes(self) -> tuple[int, ...]:
                return ()

            def _cores(self) -> int:
                return 2

        self.kind = Backend
        target = f"tfserving://127.0.0.1:1/{MODEL}?base_path={self.operator.base}"
        if policy:
            target += f"&config={self.operator.file}"
        if label:
            target += f"&label={label}"
        self.target = target
        self.world.install(monkeypatch)
        self.backend: TFServingBackend | None = None
        self.wanted: list[Configuration] = []
        self.rival: TFServingBackend | None = None
        self.to_clean = True
        self.connected_to_his = False

    def _others(self) -> None:
        self._ask()
        if self.rival is not None and self.rng.random() < self.busy / 2 and not self.world.locked:
            self.compete()
        if self.rng.random() < self.busy:
            self.operator.act()
            self._ask()

    def open_rival(self) -> None:
        """Open another tuner: of the same, or of another label of the model."""
        target = self.target
        if self.rng.random() < 0.7:
            target = target.replace("label=stable", "label=canary")
        try:
            self.rival = self.kind(target, load_timeout=15.0, settle=0.0)
        except AdapterError:
            return
        found = self.rival._version_knobs._found
        self.to_clean = found.number == found.origin

    def compete(self) -> None:
        """The other tuner makes a change, perhaps in the middle of ours."""
        rival, self.rival = self.rival, None
        assert rival is not None
        size = self.rng.choice([1, 4, 8, 32])
        wanted = rival.space.effective(Configuration(max_batch_size=size, batch_timeout=0.002))
        self.journal.append(f"  rival {rival._target.label} applies {dict(wanted)}")
        self.operator.acted = True
        self.wanted.append(wanted)
        busy, self.busy = self.busy, 0.0
        try:
            with self.world.tuner():
                rival.apply(wanted)
        except AdapterError as error:
            self.journal.append(f"    {type(error).__name__}: {error}")
        self.rival, self.busy = rival, busy

    def _ask(self) -> None:
        """Clients send requests."""
        if not self.server.up:
            return
        for label in ("stable", "canary") if self.operator.label else ("",):
            if self.server.answers(MODEL, label) is None:
                self.lost.append(f"a request for {label!r} failed")
        if self.operator.policy and self.server.answers("bert") is None:
            self.lost.append("a request to bert failed")

    def settle(self) -> None:
        """Let everything come to rest."""
        for _ in range(60):
            self.operator.finish()
            self.server.advance(1.0)
            self.world.time += 1.0
            self._ask()
        self.operator.acted = False

    def connect(self, **faults: Any) -> None:
        """A new process."""
        self.journal.append("connect")
        self.backend = None
        try:
            with self.world.tuner(**faults):
                backend = self.kind(self.target, load_timeout=15.0, settle=0.0)
                found = backend._version_knobs._found
                self.found = backend.current()
                self.backend = backend
                self.connected_to_his = found.number == found.origin
        except (AdapterError, InvalidInput, Killed, KeyboardInterrupt) as error:
            self.journal.append(f"  {type(error).__name__}: {error}")

    def apply(self, **faults: Any) -> None:
        """Change the knobs."""
        assert self.backend is not None
        wanted = Configuration(
            max_batch_size=self.rng.choice([1, 4, 8, 32]), batch_timeout=self.rng.choice([0.0, 0.005])
        )
        wanted = self.backend.space.effective(wanted)
        self.journal.append(f"apply {dict(wanted)} {faults}")
        before, self.operator.acted = self.runs(), self.operator.acted or bool(self.operator.later)
        try:
            with self.world.tuner(**faults):
                report = self.backend.apply(wanted)
            self.wanted = [wanted] if self.rival is None else [*self.wanted, wanted]
            self.operator.withdrawn &= self.operator.acted or not report.changed
        except (Refused, ReadOnly, InvalidInput) as error:
            self._said(error)
            if not self.operator.acted:
                self.settle()
                assert self.runs() == before, "a refused change has changed something"
        except AdapterError as error:
            self._said(error)
            self.wanted.append(wanted)
        except KeyboardInterrupt:
            self.wanted.append(wanted)
        except Killed:
            self.wanted.append(wanted)
            self.backend = None

    def restore(self, **faults: Any) -> bool:
        """Put back what was found; return whether that was done."""
        assert self.backend is not None
        self.journal.append(f"restore {faults}")
        self.wanted.append(self.found)
        try:
            with self.world.tuner(**faults):
                self.backend.restore()
        except (AdapterError, KeyboardInterrupt) as error:
            self._said(error)
            return False
        except Killed:
            self.backend = None
            return False
        self.operator.withdrawn &= self.operator.acted
        return True

    def _said(self, error: BaseException) -> None:
        self.journal.append(f"  {type(error).__name__}: {error}")
        if isinstance(error, InvalidInput):
            assert error.setting.startswith("knob"), error

    def runs(self) -> Any:
        """The weights and the knobs that clients get."""
        served = self.server.answers(MODEL, self.operator.label)
        if served is None:
            return None
        batching = parse_batching(served.batching, "served")
        return served.weights, read_batching(batching, ["max_batch_size", "batch_timeout"])

    def check(self) -> None:
        """What must hold when everything has come to rest."""
        assert not self.lost, self.lost[:3]
        assert not self.server.failed_start
        weights, batching = self.operator.deployed[self.operator.target()]
        runs = self.runs()
        assert runs is not None
        assert self.operator.withdrawn or runs[0] == weights, f"serves {runs[0]}, not {weights}"
        his = read_batching(parse_batching(batching, "his"), ["max_batch_size", "batch_timeout"])
        assert runs[1] in [his, *self.wanted], f"runs {runs[1]}, not {[his, *self.wanted]}"
        if self.operator.label:
            canary = self.server.answers(MODEL, "canary")
            assert canary is not None
            assert canary.weights == self.operator.deployed[self.operator.canary][0], "canary"
        assert self.world.leaked == 0, "a file is left open"

    def check_restored(self) -> None:
        """Nothing of ours is left."""
        self.settle()
        self.wanted = []
        self.check()
        left = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if "servetune" in path.name]
        assert not left, left
        his = {str(n) for n in self.operator.deployed}
        there = {path.name for path in self.operator.base.iterdir()}
        assert there >= his
        assert not self.operator.ours()
        if self.operator.policy:
            text = self.operator.file.read_text()
            if not self.operator.edited:
                assert text == self.operator.text, text
            named = self.server._read().model_config_list.config[1].model_version_policy.specific.versions
            assert set(named) <= set(self.operator.numbers()) | self.operator.ever, list(named)
