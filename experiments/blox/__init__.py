"""Nexus on Blox (a course report): jobs in rounds, FIFO against Nexus, placement. One file per figure."""
