"""The command line: one module per command; errors end it with one sentence and exit code 2."""

from tuner.cli.app import main

__all__ = ["main"]
