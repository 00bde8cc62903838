"""What carries decisions out on one server."""
