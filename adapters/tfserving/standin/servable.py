"""One loaded version: a SavedModel in a TensorFlow session of its own, behind the C++ batching kernel.

Closing the session ends the batch threads and frees the weights, so versions can be loaded and unloaded for
days. The kernel does not say how long a request waited and in which batch it was. So the batched function has
three outputs beside the model's: when the batch began, how many rows it has, and the position of each row in
it.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tuner.adapters.tfserving.batching import (
    DEFAULT_ENQUEUED,
    FILE,
    batch_limit,
    parse_batching,
    read_batching,
    splits,
)
from tuner.adapters.tfserving.standin.metrics import Registry

__all__ = ["Servable", "ServingOptions", "Signature"]


class ServingOptions(NamedTuple):
    """What all versions of a server share."""

    batching: bool
    """``--enable_batching``."""
    per_model: bool
    """``--enable_per_model_batching_parameters``."""
    common: Any
    """Parameters of ``--batching_parameters_file``, None without it."""
    intra_op: int
    inter_op: int


class Signature(NamedTuple):
    """A way to call the model."""

    call: Any
    inputs: dict[str, Any]
    """Name -> tensor specification, in the order of the call."""
    outputs: list[str]


class Servable:
    """One version, loaded.

    Args:
        model: The model's name.
        folder: The version's folder.
        options: What all versions share.
        metrics: Counts executions.

    Raises:
        Exception: Whatever TensorFlow raises, such as for parameters that contradict each other.
    """

    def __init__(self, model: str, folder: Path, options: ServingOptions, metrics: Registry) -> None:
        self._model = model
        self._metrics = metrics
        self._users = 0
        self._idle = threading.Condition()
        self._batching = _parameters(folder, options)
        self._threads = 0 if options.common is None else options.common.num_batch_threads.value
        self._graph = tf.Graph()
        with self._graph.as_default():
            config = tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=options.intra_op,
                inter_op_parallelism_threads=options.inter_op,
            )
            self._session = tf.compat.v1.Session(graph=self._graph, config=config)
            loaded = tf.saved_model.load(str(folder))
            calls = {name: self._prepare(name, f) for name, f in loaded.signatures.items()}
            self._session.run(tf.compat.v1.global_variables_initializer())
            collections = tf.compat.v1.GraphKeys
            self._session.run(tf.compat.v1.get_collection(collections.TABLE_INITIALIZERS))
            self.signatures = {
                name: Signature(self._session.make_callable(outputs, inputs), specs, names)
                for name, (inputs, outputs, specs, names) in calls.items()
            }

    def _prepare(self, name: str, function: Any) -> tuple[list[Any], list[Any], dict[str, Any], list[str]]:
        """Make placeholders and outputs for a signature."""
        specs = dict(sorted(function.structured_input_signature[1].items()))
        places = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs.values()]
        names = sorted(function.structured_outputs)

        def plain(*tensors: Any) -> list[Any]:
            answer = function(**dict(zip(specs, tensors, strict=True)))
            return [answer[key] for key in names]

        if self._batching is None:
            return places, plain(*places), specs, names

        def batched(*tensors: Any) -> list[Any]:
            begun = tf.timestamp()
            with tf.control_dependencies([begun]):
                tensors = tuple(tf.identity(tensor) for tensor in tensors)
            rows = tf.shape(tensors[0])[0]
            return [*plain(*tensors), tf.fill([rows], begun), tf.fill([rows], rows), tf.range(rows)]

        kernel = tf.function(batched, autograph=False).get_concrete_function(
            *[tf.TensorSpec(place.shape, place.dtype) for place in places]
        )
        outputs = tf.raw_ops.BatchFunction(
            in_tensors=places,
            captured_tensors=kernel.captured_inputs,
            f=kernel,
            Tout=[output.dtype for output in kernel.outputs],
            shared_name=name,
            batching_queue=name,
            **self._kernel_options(),
        )
        return places, outputs, specs, names

    def _kernel_options(self) -> dict[str, Any]:
        """Return the parameters as the kernel takes them."""
        parameters = self._batching
        size = int(read_batching(parameters, ["max_batch_size"])["max_batch_size"])
        allowed = list(parameters.allowed_batch_sizes)
        if allowed and (sorted(set(allowed)) != allowed or allowed[-1] != size):
            raise ValueError(
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{allowed[-1]}; expected {size}"
            )
        if splits(parameters) and not allowed:
            allowed = list(range(1, size + 1))  # the kernel executes no more rows than the last of these
        set_ = parameters.HasField("max_enqueued_batches")
        return {
            "num_batch_threads": self._threads or os.cpu_count() or 1,
            "max_batch_size": batch_limit(parameters) if splits(parameters) else size,
            "batch_timeout_micros": parameters.batch_timeout_micros.value,
            "max_enqueued_batches": parameters.max_enqueued_batches.value if set_ else DEFAULT_ENQUEUED,
            "allowed_batch_sizes": allowed,
            "enable_large_batch_splitting": splits(parameters),
        }

    def run(self, signature: Signature, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Answer one request, in a batch with others if so configured.

        Raises:
            tf.errors.OpError: The kernel or the model refuses.
        """
        arrays = [inputs[name] for name in signature.inputs]
        begun, entered = time.perf_counter(), time.time()
        outputs = signature.call(*arrays)
        self._metrics.run(self._model, time.perf_counter() - begun)
        if self._batching is not None:
            *outputs, starts, sizes, places = outputs
            first = int(sizes[0]) if places[0] == 0 else None
            self._metrics.batched(len(arrays[0]), float(starts[0]) - entered, first)
        return dict(zip(signature.outputs, outputs, strict=True))

    def __enter__(self) -> Servable:
        with self._idle:
            self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._idle:
            self._users -= 1
            self._idle.notify_all()

    def close(self) -> None:
        """Wait until no request uses it, and free everything."""
        with self._idle:
            self._idle.wait_for(lambda: self._users == 0, timeout=30.0)
        self._session.close()
        self.signatures.clear()
        del self._graph
        gc.collect()  # a graph has reference cycles: without this 0.5 MB would remain for each version


def _parameters(folder: Path, options: ServingOptions) -> Any:
    """Return the parameters that TensorFlow Serving would use for a version; None for no batching."""
    if not options.batching:
        return None
    if not options.per_model:
        return options.common if options.common is not None else parse_batching("", "no file")
    file = folder / FILE
    return parse_batching(file.read_text(), str(file)) if file.exists() else None
