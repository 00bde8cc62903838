"""A stand-in for ``tensorflow_model_server`` where there is no binary of it: ``python -m`` this package.

It runs real SavedModels in real TensorFlow sessions, behind the batching kernel that TensorFlow Serving uses
itself, and has the same protocol, flags, file layout and metric names. It is for demo and tests, on 127.0.0.1
only. Not implemented are platforms other than TensorFlow, REST prediction, Classify and Regress, streaming,
warm-up, and one pool of batch threads for several models.
"""

__all__: list[str] = []
