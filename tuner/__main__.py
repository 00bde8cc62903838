"""Runs the command line as ``python -m tuner``."""

from tuner.cli import main

main()
