"""Squishy bin packing (Nexus, section 6.1): which backend serves which sessions, in which batches."""
