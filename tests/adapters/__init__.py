"""Tests of the serving backends."""
