"""How a server is reached: channels, requests of our own, and what keeps both secure."""
