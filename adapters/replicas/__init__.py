"""Several servers with one model behind one load balancer, as one backend."""
