"""Our declarations of the servers' messages against the package that carries the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from google.protobuf import text_format

from tuner.adapters.tfserving.download import python_path
from tuner.adapters.tfserving.schema import message

REAL = """
import json
from google.protobuf import descriptor_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2, status_pb2
from tensorflow_serving.config import file_system_storage_path_source_pb2, log_collector_config_pb2
from tensorflow_serving.config import logging_config_pb2, model_server_config_pb2

def walk(message):
    fields = {f.name: [f.number, f.type, f.is_repeated, f.has_presence] for f in message.fields}
    yield message.name, fields
    for nested in message.nested_types:
        yield from walk(nested)

modules = [value for name, value in globals().items() if name.endswith("_pb2") and name != "descriptor_pb2"]
found = {}
for module in modules:
    for message in module.DESCRIPTOR.message_types_by_name.values():
        for name, fields in walk(message):
            found.setdefault(name, fields)
print(json.dumps(found))
"""
INT32, ENUM = 5, 14
COMPLETE = ("ModelServerConfig", "ModelConfigList", "ModelConfig", "LoggingConfig", "SamplingConfig")
"""Messages in the operator's own file: every field must be known."""
NOT_IN_THE_PACKAGE = ("BatchingParameters", "PrometheusConfig", "MonitoringConfig")


@pytest.mark.tfserving
def test_every_field_is_the_servers() -> None:
    """Number, type and kind of each declared field are those of TensorFlow Serving's own messages."""
    answer = subprocess.run(
        [sys.executable, "-c", REAL],
        env={**os.environ, "PYTHONPATH": python_path(), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    real = json.loads(answer.stdout.splitlines()[-1])
    declared = message("ModelSpec").DESCRIPTOR.file.message_types_by_name

    assert len(declared) > 25
    for name, descriptor in declared.items():
        if name in NOT_IN_THE_PACKAGE:
            continue
        fields = {f.name: [f.number, f.type, f.is_repeated, f.has_presence] for f in descriptor.fields}
        if name in COMPLETE:
            assert set(fields) == set(real[name]), name
        for field, (number, kind, repeated, _) in fields.items():
            there = real[name][field]
            assert [number, repeated] == [there[0], there[2]], f"{name}.{field}"
            assert kind == there[1] or (kind, there[1]) == (INT32, ENUM), f"{name}.{field}"


def test_a_choice_shows_which_was_made() -> None:
    """The policy of a model is one of three."""
    text = 'model_config_list { config { name: "m" model_version_policy { all {} } } }'

    policy = text_format.Parse(text, message("ModelServerConfig")()).model_config_list.config[0]

    assert policy.model_version_policy.HasField("all")
    assert not policy.model_version_policy.HasField("specific")


def test_nothing_of_tensorflow_is_loaded() -> None:
    """A tuner of TensorFlow Serving does not pay for TensorFlow, nor does it need it."""
    code = """
import sys
sys.modules.update(dict.fromkeys(("tensorflow", "tensorflow_serving")))  # as if they were not installed
from tuner.adapters.tfserving import backend, wire
wire.message("PredictRequest")
import psutil
print(psutil.Process().memory_info().rss // 2**20)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(answer.stdout) < 120
