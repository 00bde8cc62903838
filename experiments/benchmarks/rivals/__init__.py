"""What the compiled policies and engine are measured against: plain Python, and SimPy."""
