"""A stand-in for ``tensorflow_model_server`` where its binary cannot be had: ``python -m`` this package.

It runs real SavedModels in real TensorFlow sessions, behind the batching kernel that TensorFlow Serving
uses itself, and speaks its protocol, flags, file layout and metric names. It is for demo and tests, on
127.0.0.1 only. What it does not have: other platforms than TensorFlow, REST prediction, Classify and
Regress, streaming, warm-up, and one pool of batch threads for several models.
"""

__all__: list[str] = []
