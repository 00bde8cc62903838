"""The daemon under faults, under load that jumps, over a long time, and when it has nothing to do."""
