"""Changes of TensorFlow Serving's batching: version folders, and the labels that steer clients to them."""
