"""What decides, without I/O: the control loop, its guard, and what they remember."""
