"""Requests of our own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.adapters.waiting import counted
from tests.waiting import eventually
from tuner.adapters.connection.endpoint import Endpoint
from tuner.adapters.connection.request import Input, filled_inputs
from tuner.adapters.tfserving.backend import TFServingBackend
from tuner.adapters.tfserving.embedded import EmbeddedTFServing
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.wire import encode, signature_inputs
from tuner.errors import InvalidInput
from tuner.profiler.load.generator import LoadGenerator

ENDPOINT = Endpoint(
    wire="tuner.adapters.tfserving.wire",
    address="host:8500",
    model="mlp",
    options={"label": "stable", "signature": "embed"},
)


def metadata() -> Any:
    signatures = message("SignatureDefMap")()
    inputs = signatures.signature_def["embed"].inputs
    inputs["ids"].dtype = 9
    for size in (-1, 4):
        inputs["ids"].tensor_shape.dim.add(size=size)
    inputs["odd"].dtype, inputs["odd"].tensor_shape.unknown_rank = 1, True
    signatures.signature_def["serving_default"].inputs["x"].dtype = 99
    answer = message("GetModelMetadataResponse")()
    answer.metadata["signature_def"].value = signatures.SerializeToString()
    return answer


def test_a_signature_is_read() -> None:
    """Names, types and shapes; what cannot be made up is said so."""
    with pytest.raises(InvalidInput, match="input odd: the model does not say how many dimensions"):
        signature_inputs(metadata(), "embed")
    with pytest.raises(InvalidInput, match="no 'classify'; its signatures: embed, serving_default"):
        signature_inputs(metadata(), "classify")
    assert signature_inputs(metadata(), "serving_default") == [Input("x", "number 99", ())]


def test_a_request_has_all_that_names_the_model() -> None:
    """Label and signature, and one row of each input; texts go in a field of their own."""
    inputs = [Input("ids", "INT64", (-1, 4)), Input("text", "BYTES", (-1, 2))]

    raw = encode(ENDPOINT, filled_inputs(inputs, {}, np.random.default_rng(0)))

    request = message("PredictRequest").FromString(raw)
    spec = request.model_spec
    assert (spec.name, spec.version_label, spec.signature_name) == ("mlp", "stable", "embed")
    assert len(np.frombuffer(request.inputs["ids"].tensor_content, "<i8")) == 4
    assert [len(text) for text in request.inputs["text"].string_val] == [8, 8]
    assert [dim.size for dim in request.inputs["text"].tensor_shape.dim] == [1, 2]


@pytest.mark.tfserving
def test_the_load_generator_speaks_it(backend: TFServingBackend) -> None:
    """Every request is answered, and the server counts as many."""
    before = backend.counters().requests
    with LoadGenerator(backend.endpoint(), "constant:40") as load:
        eventually(lambda: load.totals().answered > 30)
    totals = load.totals()
    wanted = before + totals.answered + 1  # one was tried at first

    assert totals.sent == totals.answered
    assert counted(backend, wanted).requests == wanted


@pytest.mark.tfserving
def test_unknown_signature(backend: TFServingBackend, embedded: EmbeddedTFServing) -> None:
    """Those there are stand in the message."""
    endpoint = Endpoint(
        wire=backend.endpoint().wire,
        address=backend.endpoint().address,
        model="mlp",
        options={"signature": "embed"},
    )

    with pytest.raises(InvalidInput, match="its signatures: serving_default"):
        LoadGenerator(endpoint, "constant:40")
