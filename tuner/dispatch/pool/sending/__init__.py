"""The ways of batches to their servers: who executes what, and how it gets there."""
