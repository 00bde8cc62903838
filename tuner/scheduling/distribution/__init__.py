"""Distribution policies: each request has a size and executes alone on one of several unlike accelerators."""
