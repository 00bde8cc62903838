"""Changes of TensorFlow Serving's batching: version folders, and how requests come to them."""
