"""The dispatcher before real servers: goodput, faults, overhead."""
