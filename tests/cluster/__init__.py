"""Tests of the compiled cluster engine."""
