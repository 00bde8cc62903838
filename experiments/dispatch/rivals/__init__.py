"""Servers that form batches by themselves, each in a virtualenv of its own, with the same small network.

Every server speaks KServe's protocol over gRPC, executes the network with onnxruntime on one thread, and is
measured with the same requests.
"""
