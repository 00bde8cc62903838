"""What the server is found to run: our changes, late ones, those by others, what an outage has left."""
