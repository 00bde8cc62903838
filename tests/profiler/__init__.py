"""Tests of the profiler and its load generator."""
