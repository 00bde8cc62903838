"""Decisions without I/O: events, the memory, the facts of a window, and the rules that decide from them."""
