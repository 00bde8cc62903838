"""Servers that form batches by themselves, each in an environment of its own, with the same trivial model.

The model gives each input back as an output. Every server speaks KServe's protocol over gRPC, and is measured
with the same requests.
"""
