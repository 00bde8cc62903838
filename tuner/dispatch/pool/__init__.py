"""Sessions and the servers that they share: one scheduler, what it believes, and the flow of requests."""
