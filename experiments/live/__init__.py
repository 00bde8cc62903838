"""Measurements of our own on live servers: a Triton or a TensorFlow Serving under a load that we send."""
