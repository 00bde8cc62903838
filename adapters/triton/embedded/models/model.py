"""Runs an ONNX network inside Triton's Python backend, all requests of a batch in one call.

The model parameter ``intra_op_threads`` says how many threads one instance uses.
"""

import ctypes
import json
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

MOST_THREADS = 256
SET_DESTRUCTOR = ctypes.pythonapi.PyCapsule_SetDestructor
SET_DESTRUCTOR.argtypes = [ctypes.py_object, ctypes.c_void_p]


def to_tensor(name, array):
    """Return an array as a tensor of the backend, without copying it in Python.

    By DLPack: the backend's own exchange of arrays garbles them silently under numpy 2. The backend takes
    the array's memory over but leaves numpy's destructor on the capsule, which then prints an error for
    every tensor; so it is removed.
    """
    capsule = array.__dlpack__()
    SET_DESTRUCTOR(capsule, None)
    return pb_utils.Tensor.from_dlpack(name, capsule)


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        """Load the network that lies beside this file."""
        parameters = json.loads(args["model_config"]).get("parameters", {})
        threads = int(parameters.get("intra_op_threads", {"string_value": "1"})["string_value"])
        if not 1 <= threads <= MOST_THREADS:
            raise ValueError(f"intra_op_threads={threads} is not between 1 and {MOST_THREADS}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A spinning thread would count as CPU use although it does nothing.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        provider = "CPUExecutionProvider"
        if args["model_instance_kind"] == "GPU":
            provider = ("CUDAExecutionProvider", {"device_id": int(args["model_instance_device_id"])})
            # Those that pip installs lie where the system does not look for libraries.
            onnxruntime.preload_dlls()
        self.session = onnxruntime.InferenceSession(path, options, providers=[provider])
        if self.session.get_providers()[0] not in provider:  # it would fall back to the processor silently
            raise ValueError("onnxruntime cannot use CUDA; install onnxruntime-gpu[cuda,cudnn]")

    def execute(self, requests):
        """Answer a batch of requests, each with one or more rows."""
        inputs = [pb_utils.get_input_tensor_by_name(request, "input") for request in requests]
        rows = [np.from_dlpack(tensor) for tensor in inputs]
        (output,) = self.session.run(None, {"input": np.concatenate(rows)})
        ends = np.cumsum([len(part) for part in rows])[:-1]
        return [pb_utils.InferenceResponse([to_tensor("output", part)]) for part in np.split(output, ends)]
