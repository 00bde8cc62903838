"""How a server is reached: targets, channels, control, requests of our own, and what keeps them secure."""
