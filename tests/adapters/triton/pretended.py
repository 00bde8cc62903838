"""A pretended Triton with its operator and a tuner, and what must hold there.

Time is virtual. The server is in explicit mode, or reads its model's file again every second. What it does is
as seen of the real one; `test_backend.py` and `test_poll.py` have that.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as tritongrpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.text_format import Parse, ParseError
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

from tests.adapters.world import Killed, World
from tuner.adapters.triton.backend import TritonBackend
from tuner.adapters.triton.batching import own_batching
from tuner.adapters.triton.configuration import ModelConfig, read_configuration
from tuner.errors import AdapterError, InvalidInput, Refused
from tuner.knobs import Configuration

__all__ = ["Bed"]

TEXT = """# word {word}
name: "mlp"  max_batch_size: {limit}
{batching}
instance_group [{{ count: {count} kind: KIND_CPU }}]
parameters [{{ key: "deployment" value: {{ string_value: "{word}" }} }}]
"""
KNOBS = ("max_batch_size", "max_queue_delay", "instances")
POLL, LOADING = 1.0, 0.4


class PretendedTriton:
    """What a client of Triton sees of a server.

    Args:
        file: The model's ``config.pbtxt``.
        polls: Whether it reads that again, and takes no changes over the network.
    """

    def __init__(self, file: Path, *, polls: bool) -> None:
        self.file, self.polls = file, polls
        self.up = True
        self.world: World | None = None
        self.total = 0
        self.restart()

    def restart(self) -> None:
        """Begin anew, with what the file says; a file that makes no sense serves nothing."""
        self.read = self.file.read_text()
        self.running = self.understood(self.read)
        self.due, self.coming, self.looks, self.count = 0.0, self.running, POLL, 0

    def understood(self, text: str) -> Any:
        """Return what a file means."""
        config = Parse(text, model_config_pb2.ModelConfig())
        return self.checked(config)

    def checked(self, config: Any) -> Any:
        """Return a configuration as the server fills it in."""
        batching = config.dynamic_batching
        if any(size > config.max_batch_size for size in batching.preferred_batch_size):
            raise ParseError("preferred sizes are beyond max_batch_size")
        if config.name != "mlp" or any(group.count > 8 for group in config.instance_group):
            raise ParseError("cannot be loaded")
        if config.HasField("dynamic_batching") and not batching.preferred_batch_size:
            batching.preferred_batch_size.append(config.max_batch_size)
        return config

    def advance(self, seconds: float) -> None:
        """Let time pass: requests are served, and a polling server looks at its file."""
        self.looks -= seconds
        self.due -= seconds
        if self.up:
            self.total += 3
            self.count += 3
        if self.coming is not self.running and self.due <= 0:
            self.running, self.count = self.coming, 0
        if self.up and self.polls and self.looks <= 0:
            self.looks = POLL
            text = self.file.read_text()
            if text != self.read:
                self.read = text
                with suppress(ParseError):  # it goes on with the old one
                    self.coming, self.due = self.understood(text), LOADING

    def asked(self, what: str) -> None:
        """Let the world go on, then answer, if it is there."""
        assert self.world is not None
        self.world.point(what, writes=False)
        if not self.up:
            raise InferenceServerException("away", "StatusCode.UNAVAILABLE")

    def get_server_metadata(self, **_: Any) -> Any:
        self.asked("metadata")
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def get_inference_statistics(self, *_: Any, **__: Any) -> Any:
        self.asked("statistics")
        response = service_pb2.ModelStatisticsResponse()
        stats = response.model_stats.add(name="mlp", version="1")
        stats.inference_stats.success.count = stats.inference_count = self.count
        return response

    def get_model_config(self, *_: Any, **__: Any) -> Any:
        self.asked("config")
        return service_pb2.ModelConfigResponse(config=self.running)

    def get_model_repository_index(self, **_: Any) -> Any:
        self.asked("index")
        response = service_pb2.RepositoryIndexResponse()
        response.models.add(name="mlp", version="1", state="READY")
        return response

    def load_model(self, model: str, config: str, **_: Any) -> None:
        self.asked("load")
        if self.polls:
            raise InferenceServerException("explicit model load / unload is not allowed")
        try:
            self.running = self.coming = self.checked(
                ParseDict(json.loads(config), model_config_pb2.ModelConfig())
            )
        except ParseError as error:
            raise InferenceServerException(str(error), "StatusCode.INVALID_ARGUMENT") from error
        self.count = 0
        self.asked("loaded")

    def unload_model(self, *_: Any, **__: Any) -> None:
        self.asked("unload")

    def is_model_ready(self, *_: Any, **__: Any) -> bool:
        self.asked("ready")
        return True

    def close(self) -> None: ...


class Bed:
    """A server, its operator and a tuner.

    Args:
        seed: Of what happens.
        root: Where the files are.
        monkeypatch: Has all operations pass through the world.
    """

    def __init__(self, seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.file = root / "models" / "mlp" / "config.pbtxt"
        self.file.parent.mkdir(parents=True)
        self.word, self.limit, self.busy, self.acted = 0, 8, 0.0, False
        self.later: list[Any] = []
        self.text = self.written = self.deploy_text()
        self.file.write_text(self.text)
        self.server = PretendedTriton(self.file, polls=self.rng.random() < 0.6)
        self.world = self.server.world = World(self.rng, root, self.server.advance)
        self.world.others = self.others
        self.world.install(monkeypatch)
        monkeypatch.setattr(tritongrpc, "InferenceServerClient", lambda *_, **__: self.server)
        self.journal = self.world.journal
        self.wanted: list[Configuration] = []
        self.opened_word = 0
        repository = f"&repository={self.file.parents[1]}" if self.server.polls else ""
        self.target = f"triton://127.0.0.1:1/mlp?metrics=off{repository}"
        self.backend: TritonBackend | None = None
        self.counted = self.at_opening = 0

    def deploy_text(self) -> str:
        """His configuration, in his own words."""
        fields = "max_queue_delay_microseconds: 3000 preferred_batch_size: [2, 8] preserve_ordering: true"
        batching = self.rng.choice(["", "dynamic_batching { }", f"dynamic_batching {{ {fields} }}"])
        return TEXT.format(word=self.word, limit=self.limit, batching=batching, count=self.rng.randint(1, 2))

    def others(self) -> None:
        """Let the operator act now and then."""
        if self.rng.random() < self.busy:
            self.act()

    def act(self) -> None:
        """The operator deploys, restarts, or goes on with what he has begun."""
        self.acted = True
        if self.later:
            self.later.pop(0)()
            return
        action = self.rng.choice([self.deploy, self.deploy, self.deploy_slowly, self.restart])
        self.journal.append(f"  operator: {action.__name__}")
        action()

    def deploy(self) -> None:
        """Write the file, and have a server in explicit mode load it."""
        self.word += 1
        self.limit = self.rng.choice([self.limit, self.limit, 16])
        self.text = self.deploy_text()
        self.file.write_text(self.text)
        if not self.server.polls:
            self.server.running = self.server.coming = self.server.understood(self.text)
            self.server.count = 0

    def deploy_slowly(self) -> None:
        """Empty the file before it is written."""
        if self.server.polls:
            self.file.write_text("")
            self.later += [lambda: None, self.deploy]

    def restart(self) -> None:
        """Restart the server; it is away for a moment."""
        self.server.up = False

        def again() -> None:
            self.server.up = True
            with suppress(ParseError):  # else it would serve nothing
                self.server.understood(self.file.read_text())
                self.server.restart()

        self.later.append(again)

    def settle(self) -> None:
        """Let everything come to rest."""
        for _ in range(20):
            if self.later:
                self.later.pop(0)()
            self.server.advance(0.5)
        self.acted = False

    def call(self, what: str, action: Any, **faults: Any) -> Any:
        """Have the tuner do something; return its error, None if it succeeded."""
        failed: BaseException
        self.journal.append(f"{what} {faults}")
        try:
            with self.world.tuner(**faults):
                action()
        except Killed as error:
            self.backend = None
            return error
        except (AdapterError, InvalidInput, KeyboardInterrupt) as error:
            self.journal.append(f"  {type(error).__name__}: {error}")
            failed = error
        else:
            return None
        assert not isinstance(failed, InvalidInput) or failed.setting.startswith("knob"), failed
        return failed

    def connect(self) -> None:
        """A new process."""

        def opened() -> None:
            self.backend = TritonBackend(self.target, settle=0.0, load_timeout=4.0)

        self.counted, self.at_opening = 0, self.server.total
        self.call("connect", opened)
        # Else it found what an earlier one has left, or what the operator has written and nobody runs.
        his = self.file.read_text() == self.text and self.config() == self.his()
        self.opened_word = self.word if his and not self.acted else -1

    def apply(self, **faults: Any) -> None:
        """Change the knobs."""
        assert self.backend is not None
        wanted = {
            "max_batch_size": self.rng.choice([1, 2, 4, 8]),
            "max_queue_delay": self.rng.choice([0.0, 0.002]),
            "instances": self.rng.choice([1, 2, 9]),
        }
        configuration = self.backend.space.effective(Configuration(wanted))
        before, backend = self.knobs(), self.backend
        self.acted = self.acted or bool(self.later)
        self.wanted.append(configuration)
        error = self.call(f"apply {wanted}", lambda: backend.apply(configuration), **faults)
        if isinstance(error, (Refused, InvalidInput)):
            self.wanted.pop()
            if not self.acted:
                self.settle()
                assert self.knobs() == before, "a refused change has changed something"

    def knobs(self) -> Configuration:
        """What the server runs."""
        return read_configuration(self.config(), KNOBS)

    def config(self) -> ModelConfig:
        """The whole configuration that it runs."""
        config: ModelConfig = MessageToDict(self.server.running, preserving_proto_field_name=True)
        return config

    def his(self) -> ModelConfig:
        """What the server makes of his last deployment."""
        config: ModelConfig = MessageToDict(
            self.server.understood(self.text), preserving_proto_field_name=True
        )
        return config

    def check(self) -> None:
        """What must hold when everything has come to rest."""
        running = self.config()
        assert running["parameters"]["deployment"]["string_value"] == str(self.word), "an older deployment"
        assert self.knobs() in [read_configuration(self.his(), KNOBS), *self.wanted]
        if "dynamic_batching" in self.his():
            assert own_batching(running) == own_batching(self.his()), "his options are lost"
        assert self.world.leaked == 0

    def count(self) -> None:
        """Totals neither fall nor double."""
        if self.backend is None or not self.server.up:
            return
        requests = self.backend.counters().requests
        assert self.counted <= requests <= self.server.total - self.at_opening
        self.counted = requests
