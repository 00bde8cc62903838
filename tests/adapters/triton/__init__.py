"""Tests of the Triton adapter and the embedded server."""
