"""What to rent and where to put it."""
