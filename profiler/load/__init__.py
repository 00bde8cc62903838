"""The load generator: a process of its own that sends requests and times them."""
