"""Many targets in one process: the file that names them, a worker for each, and the daemon that runs them."""
