"""Servers that live inside this program, for the demo and for tests, and the cache of what they need."""
