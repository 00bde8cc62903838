"""Batching policies: which requests make a batch, when it is sent, and where."""
