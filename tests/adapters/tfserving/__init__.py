"""Tests of the adapter to TensorFlow Serving."""
