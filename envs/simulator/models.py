"""The kinds of server models: which one a file holds, and which one stands for a live server.

To describe a live server, it is measured in a few configurations that show most about it, and a model of its
kind is fitted to what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tuner.adapters import Description
from tuner.envs.simulator.model_file import ModelFile, read_values
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.tfserving_cpu import INTER_OP, INTRA_OP, REQUEST_PARALLELISM, TFServingCPU
from tuner.envs.simulator.tfserving_gpu import BATCH_THREADS, MAX_BATCH, TIMEOUT, TFServingGPU
from tuner.errors import InvalidInput, check_choice
from tuner.knobs import Configuration, KnobSpace, Role

__all__ = [
    "BATCHED",
    "KINDS",
    "AnyModel",
    "as_cpu_model",
    "batcher_of",
    "kind_of",
    "load_model",
    "model_from_json",
    "probes_of",
    "server_of",
]

Kind = TypeVar("Kind", bound=ModelFile)
AnyModel = ServerModel | TFServingCPU | TFServingGPU

KINDS: dict[str, type[AnyModel]] = {
    "triton": ServerModel,
    "tfserving_cpu": TFServingCPU,
    "tfserving_gpu": TFServingGPU,
}
"""Server models by what a file's ``kind`` calls them; a file that does not say is of the first."""

Probe = dict[str, float]
"""A change of the running configuration: values of some knobs, by name."""

BATCHER: tuple[Mapping[Role, float], ...] = (
    {},
    {Role.BATCH: 1, Role.DELAY: 0.0, Role.PARALLELISM: 2},
    {Role.BATCH: 8, Role.DELAY: 0.0, Role.PARALLELISM: 1},
    {Role.BATCH: 16, Role.DELAY: 0.02, Role.PARALLELISM: 1},
    {Role.BATCH: 16, Role.DELAY: 0.005, Role.PARALLELISM: 2},
    {Role.BATCH: 8, Role.DELAY: 0.0, Role.PARALLELISM: 2},
)
"""For a server that batches on a CPU."""
BATCHED = 4
"""How many of these, at the end, make batches."""
CPU = ((1, 1, 1), (2, 1, 4), (2, 3, 1), (4, 2, 4), (3, 2, 8), (6, 1, 2), (8, 4, 4))
"""Requests, operations and threads at once."""
GPU = ((1, 0.0, 1), (8, 0.0, 1), (8, 0.01, 2), (16, 0.025, 4), (50, 0.04, 3), (50, 0.0, 8))
"""Batch sizes, timeouts and batch threads."""
UNLIKE_TRITON: Mapping[str, ServerModel] = {"tfserving": ServerModel(closing=0.0)}
"""Server's own name -> its batcher, where it differs from Triton's.

TensorFlow Serving adds requests to a batch until the batch is executed."""


def load_model(path: Path) -> AnyModel:
    """Read a server model of any kind.

    Raises:
        InvalidInput: There is no such file, its kind is unknown, or a field is unusable.
    """
    return _kind(read_values(path), str(path)).load(path)


def model_from_json(values: Mapping[str, Any]) -> AnyModel:
    """Read the plain values of a server model of any kind.

    Raises:
        InvalidInput: The kind is unknown, or a field is unusable.
    """
    return _kind(values, "server").from_json(values, "server")


def _kind(values: Mapping[str, Any], source: str) -> type[AnyModel]:
    kind = values.get("kind", next(iter(KINDS)))
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"{source} kind", f"{kind!r} is unknown", f"use {', '.join(KINDS)}")
    return KINDS[kind]


def server_of(server: object, kind: type[Kind], known: Mapping[str, Kind], name: str) -> Kind:
    """Return a server model, which must be of the kind that an environment simulates.

    Args:
        server: The model; None for the one known by the name.
        kind: Its class.
        known: Models of the kind.
        name: Of one of them.

    Raises:
        InvalidInput: It is of another kind, or the name of a file or model, or there is none of that name.
    """
    if server is None:
        check_choice("model", name, known)
        return known[name]
    if isinstance(server, str) and server in known:
        fix = "leave server out" if server == name else f"write model={server!r}"
        raise InvalidInput("server", f"{server!r} is the name of a model", fix)
    if isinstance(server, (str, Path)):
        fix = f"write server=tuner.envs.simulator.models.load_model(Path({str(server)!r}))"
        raise InvalidInput("server", f"{str(server)!r} is the name of a file, not a model", fix)
    if not isinstance(server, kind):
        found = getattr(server, "kind", type(server).__name__)
        wanted = next(name for name, one in KINDS.items() if one is kind)
        raise InvalidInput(
            "--server", f"it is a model of {found}, not of {wanted}", "use another environment"
        )
    return server


def kind_of(space: KnobSpace) -> type[AnyModel]:
    """Return the kind of model that describes a server with some knobs.

    A TensorFlow Serving on a CPU has knobs for operations and threads. One that batches on a GPU has a batch
    timeout and batch threads. Any other server is described like a Triton.
    """
    names = set(space.names)
    if {INTER_OP, INTRA_OP} <= names and space.with_role(Role.PARALLELISM) is not None:
        return TFServingCPU
    return TFServingGPU if {MAX_BATCH, TIMEOUT, BATCH_THREADS} <= names else ServerModel


def batcher_of(description: Description) -> ServerModel:
    """Return the model that a fit of a batching server begins with, and whose name it keeps."""
    return UNLIKE_TRITON.get(description.server, ServerModel()).replace(name=description.model)


def probes_of(space: KnobSpace, kind: type[AnyModel]) -> list[Probe]:
    """Return the probes for a server, those that make batches last."""
    if kind is TFServingCPU:
        return [
            {
                **_named(space, {Role.PARALLELISM: requests, Role.BATCH: 1}),
                INTER_OP: operations,
                INTRA_OP: threads,
            }
            for requests, operations, threads in CPU
        ]
    if kind is TFServingGPU:
        return [{MAX_BATCH: b, TIMEOUT: timeout, BATCH_THREADS: threads} for b, timeout, threads in GPU]
    if Role.PARALLELISM in space.fixed:
        # Such a server runs unbatched requests all at once, which shows nothing about one of them.
        unbatched: tuple[Mapping[Role, float], ...] = ({Role.BATCH: 2, Role.DELAY: 0.0},)
    else:
        unbatched = BATCHER[:-BATCHED]
    return [_named(space, values) for values in (*unbatched, *BATCHER[-BATCHED:])]


def as_cpu_model(space: KnobSpace, configuration: Configuration) -> Configuration:
    """Return a live configuration with the knob names of :class:`TFServingCPU`."""
    parallelism = space.with_role(Role.PARALLELISM)
    return Configuration(
        {
            REQUEST_PARALLELISM if knob is parallelism else knob.name: configuration[knob.name]
            for knob in space.knobs
        }
    )


def _named(space: KnobSpace, values: Mapping[Role, float]) -> Probe:
    """Return values by knob name, as far as there are knobs with these roles."""
    return {knob.name: values[knob.role] for knob in space.knobs if knob.role in values}
