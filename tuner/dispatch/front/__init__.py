"""What clients talk to: KServe's protocol over gRPC and HTTP, and TensorFlow Serving's over gRPC."""

from tuner.dispatch.front.config import FrontConfig
from tuner.dispatch.front.fronts import Fronts

__all__ = ["FrontConfig", "Fronts"]
