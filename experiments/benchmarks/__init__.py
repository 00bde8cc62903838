"""How fast engine, policies and one live decision are, beside the same thing in SimPy and plain Python."""
