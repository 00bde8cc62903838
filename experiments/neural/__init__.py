"""The neural latency estimator: how it is trained, and what it is worth on servers that it never saw."""
