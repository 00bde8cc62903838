"""Prefix batching: networks that begin alike share a batch up to where they differ (Nexus, section 6.3)."""

from tuner.planning.prefix.common import CommonPrefix, common_prefix, families
from tuner.planning.prefix.graph import Graph, Operation, Weight
from tuner.planning.prefix.run import PrefixBatch, PrefixRequest

__all__ = [
    "CommonPrefix",
    "Graph",
    "Operation",
    "PrefixBatch",
    "PrefixRequest",
    "Weight",
    "common_prefix",
    "families",
]
