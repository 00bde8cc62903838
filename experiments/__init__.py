"""Experiments: one file per figure or table, each a command with a recorded result in ``results/``."""
