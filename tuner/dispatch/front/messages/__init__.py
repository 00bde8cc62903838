"""What clients say and are answered, by protocol: bytes become requests, and replies become bytes; no I/O."""
