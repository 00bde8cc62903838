"""The messages of TensorFlow Serving's protocol, built when they are first needed.

The package that contains them, ``tensorflow-serving-api``, requires 1.9 GB of TensorFlow, and importing it
costs 2 s and 700 MB. A tuner needs a dozen small messages. So they are declared here as the servers' own
``.proto`` files declare them, and protobuf does the rest: the wire format, and the text format of
``batching_params.pbtxt`` and of the model configuration file. They are in a descriptor pool of their own, so
that there is no conflict in a program that loads TensorFlow, too. A test compares every field with the
package. Where only the wire format matters, fields that we neither read nor write are left out, because it
skips them. Messages of the operator's files, which are read and written back, are complete.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

__all__ = ["PACKAGE", "message"]

PACKAGE = "tensorflow.serving"
DECLARATIONS = """
message BatchingParameters {
  google.protobuf.Int64Value max_batch_size = 1;
  google.protobuf.Int64Value batch_timeout_micros = 2;
  google.protobuf.Int64Value max_enqueued_batches = 3;
  google.protobuf.Int64Value num_batch_threads = 4;
  google.protobuf.StringValue thread_pool_name = 5;
  repeated int64 allowed_batch_sizes = 6;
  bool pad_variable_length_inputs = 7;
  google.protobuf.BoolValue enable_large_batch_splitting = 8;
  google.protobuf.Int64Value max_execution_batch_size = 9;
}
message PrometheusConfig { bool enable = 1; string path = 2; }
message MonitoringConfig { PrometheusConfig prometheus_config = 1; }

message ModelSpec {
  string name = 1;
  google.protobuf.Int64Value version = 2;
  string signature_name = 3;
  string version_label = 4;
}
message StatusProto { int32 error_code = 1; string error_message = 2; }

message GetModelStatusRequest { ModelSpec model_spec = 1; }
message ModelVersionStatus { int64 version = 1; int32 state = 2; StatusProto status = 3; }
message GetModelStatusResponse { repeated ModelVersionStatus model_version_status = 1; }

message ReloadConfigRequest { ModelServerConfig config = 1; }
message ReloadConfigResponse { StatusProto status = 1; }
message ModelServerConfig {
  ModelConfigList model_config_list = 1;
  google.protobuf.Any custom_model_config = 2;
}
enum ModelType { MODEL_TYPE_UNSPECIFIED = 0; TENSORFLOW = 1; OTHER = 2; }
message ModelConfigList { repeated ModelConfig config = 1; }
message ModelConfig {
  string name = 1;
  string base_path = 2;
  ModelType model_type = 3;
  string model_platform = 4;
  LoggingConfig logging_config = 6;
  ServableVersionPolicy model_version_policy = 7;
  map<string, int64> version_labels = 8;
}
message ServableVersionPolicy { Latest latest = 100; All all = 101; Specific specific = 102; }
message Latest { uint32 num_versions = 1; }
message All { }
message Specific { repeated int64 versions = 1; }
message LoggingConfig {
  LogCollectorConfig log_collector_config = 1;
  SamplingConfig sampling_config = 2;
  google.protobuf.Any custom_logging_config = 3;
}
message LogCollectorConfig { string type = 1; string filename_prefix = 2; }
message SamplingConfig {
  double sampling_rate = 1;
  int32 attributes = 2;
  repeated PerTaskSamplingConfig per_task_sampling_configs = 3;
}
message PerTaskSamplingConfig { string dc = 1; optional int32 task_index = 2; double sampling_rate = 3; }

message GetModelMetadataRequest { ModelSpec model_spec = 1; repeated string metadata_field = 2; }
message GetModelMetadataResponse {
  ModelSpec model_spec = 1;
  map<string, google.protobuf.Any> metadata = 2;
}
message SignatureDefMap { map<string, SignatureDef> signature_def = 1; }
message SignatureDef {
  map<string, TensorInfo> inputs = 1;
  map<string, TensorInfo> outputs = 2;
  string method_name = 3;
}
message TensorInfo { string name = 1; int32 dtype = 2; TensorShapeProto tensor_shape = 3; }
message TensorShapeProto { repeated Dim dim = 2; bool unknown_rank = 3; }
message Dim { int64 size = 1; string name = 2; }
message TensorProto {
  int32 dtype = 1;
  TensorShapeProto tensor_shape = 2;
  bytes tensor_content = 4;
  repeated float float_val = 5;
  repeated double double_val = 6;
  repeated int32 int_val = 7;
  repeated bytes string_val = 8;
  repeated int64 int64_val = 10;
  repeated bool bool_val = 11;
  repeated int32 half_val = 13;
  repeated uint32 uint32_val = 16;
  repeated uint64 uint64_val = 17;
}
message PredictResponse { map<string, TensorProto> outputs = 1; ModelSpec model_spec = 2; }
message PredictRequest {
  ModelSpec model_spec = 1;
  map<string, TensorProto> inputs = 2;
  repeated string output_filter = 3;
}
"""
"""In the language of ``.proto`` files.

Enumerations that we only read are declared as ``int32``, which is the same on the wire. Messages that are
nested in the servers' files are not nested here, which makes no difference in text and on the wire."""

_DECLARATION = re.compile(r"(message|enum) (\w+) \{([^}]*)\}")
_FIELD = re.compile(r"(repeated |optional )?(map<string, (?P<value>[\w.]+)>|(?P<type>[\w.]+)) (\w+) = (\d+)")
_KNOWN = (wrappers_pb2.DESCRIPTOR, any_pb2.DESCRIPTOR)
_Field = descriptor_pb2.FieldDescriptorProto


@cache
def message(name: str) -> Any:
    """Return the class of a message, such as ``BatchingParameters``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in _KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        known.CopyToProto(file)
        pool.Add(file)
    pool.Add(_file())
    return pool


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="servetune.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(known.name for known in _KNOWN)
    found = _DECLARATION.findall(DECLARATIONS)
    enumerations = {name for kind, name, _ in found if kind == "enum"}
    for kind, name, body in found:
        lines = [line.strip() for line in body.split(";") if line.strip()]
        if kind == "enum":
            enumeration = file.enum_type.add(name=name)
            for line in lines:
                value, _, number = line.partition(" = ")
                enumeration.value.add(name=value, number=int(number))
            continue
        declared = file.message_type.add(name=name)
        for line in lines:
            _add_field(declared, line, enumerations)
    return file


def _add_field(declared: descriptor_pb2.DescriptorProto, line: str, enumerations: set[str]) -> None:
    match = _FIELD.fullmatch(line)
    assert match is not None, line
    modifier, name, number = match[1], match[5], int(match[6])
    field = declared.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if match["value"]:
        entry = declared.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _set_type(entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), "string", enumerations)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        _set_type(value, match["value"], enumerations)
        _set_type(field, f"{declared.name}.{entry.name}", enumerations)
        field.label = _Field.LABEL_REPEATED
        return
    _set_type(field, match["type"], enumerations)
    if modifier == "repeated ":
        field.label = _Field.LABEL_REPEATED
    elif modifier == "optional ":  # proto3 writes it as a choice of one
        field.proto3_optional = True
        field.oneof_index = len(declared.oneof_decl)
        declared.oneof_decl.add(name=f"_{name}")


def _set_type(field: descriptor_pb2.FieldDescriptorProto, text: str, enumerations: set[str]) -> None:
    scalar = f"TYPE_{text.upper()}"
    if scalar in dict(_Field.Type.items()):
        field.type = _Field.Type.Value(scalar)
        return
    field.type = _Field.TYPE_ENUM if text in enumerations else _Field.TYPE_MESSAGE
    field.type_name = f".{text}" if text.startswith("google.") else f".{PACKAGE}.{text}"
