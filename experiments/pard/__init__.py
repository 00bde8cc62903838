"""PARD: dropping the requests of queries before work is spent on them in vain."""
