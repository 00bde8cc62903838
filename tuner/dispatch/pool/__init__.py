"""Sessions and the servers that they share: one scheduler, what it believes, and the batches on their way."""
