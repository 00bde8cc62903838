"""The models that the papers measure: execution latencies ``l(b) = alpha b + beta`` on two accelerators.

The figures of Tables 4, 5 and 6 of "Symphony: Optimized DNN Model Serving using Deferred Batch
Scheduling" (arXiv 2308.07470). The SLOs of Tables 5 and 6 follow from the rule in :attr:`Model.slo_ms`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["A100", "GTX_1080TI", "TABLE_4", "Model", "Setup", "model", "strong", "weak"]

ZOO_SLO = 20
"""The least SLO of Tables 5 and 6, ms."""


class Model(NamedTuple):
    """A model on one kind of accelerator."""

    name: str
    alpha_ms: float
    beta_ms: float

    @property
    def slo_ms(self) -> int:
        """The SLO of Tables 5 and 6: twice the latency of a batch of 4, rounded down, and at least 20 ms."""
        # The tables have three digits; what lies within rounding below a whole number is that number.
        return max(ZOO_SLO, math.floor(2 * (4 * self.alpha_ms + self.beta_ms) + 1e-9))

    @property
    def batching(self) -> float:
        """How much batching helps: beta / alpha."""
        return self.beta_ms / self.alpha_ms


class Setup(NamedTuple):
    """A model with the SLO and the accelerators of an experiment."""

    model: Model
    slo_ms: float
    accelerators: int


def model(name: str, zoo: tuple[Model, ...]) -> Model:
    """Return a model of a zoo by name.

    Raises:
        KeyError: There is none.
    """
    return {one.name: one for one in zoo}[name]


def strong(zoo: tuple[Model, ...]) -> tuple[Model, ...]:
    """Return the models that batching helps much: beta / alpha > 2 (Figure 6, ``gt2``)."""
    return tuple(one for one in zoo if one.batching > 2)


def weak(zoo: tuple[Model, ...]) -> tuple[Model, ...]:
    """Return the models that batching helps little: beta / alpha < 2 (Figure 6, ``lt2``)."""
    return tuple(one for one in zoo if one.batching < 2)


GTX_1080TI = (
    Model("NASNetMobile", 0.57, 14.348),
    Model("MobileNetV3Small", 0.335, 5.35),
    Model("DenseNet169", 1.271, 13.618),
    Model("DenseNet121", 1.061, 10.312),
    Model("DenseNet201", 1.733, 15.687),
    Model("EfficientNetV2B0", 1.006, 7.493),
    Model("MobileNetV3Large", 0.82, 5.256),
    Model("InceptionV3", 1.964, 8.771),
    Model("EfficientNetV2B1", 1.661, 7.247),
    Model("ResNet50V2", 1.409, 5.947),
    Model("ResNet152V2", 3.471, 13.049),
    Model("ResNet101V2", 2.438, 9.095),
    Model("InceptionResNetV2", 5.09, 18.368),
    Model("EfficientNetB0", 1.569, 5.586),
    Model("MobileNetV2", 1.18, 3.483),
    Model("ResNet101", 3.164, 9.065),
    Model("EfficientNetB1", 2.489, 6.674),
    Model("ResNet50", 2.05, 5.378),
    Model("EfficientNetV2B2", 2.254, 5.896),
    Model("VGG19", 3.059, 7.857),
    Model("ResNet152", 4.599, 11.212),
    Model("MobileNet", 1.009, 2.39),
    Model("VGG16", 2.734, 5.786),
    Model("EfficientNetB2", 3.446, 5.333),
    Model("EfficientNetV2B3", 4.072, 5.981),
    Model("NASNetLarge", 17.656, 18.952),
    Model("EfficientNetV2S", 8.463, 8.862),
    Model("EfficientNetB3", 5.924, 4.849),
    Model("EfficientNetV2L", 40.313, 28.208),
    Model("EfficientNetV2M", 22.619, 14.786),
    Model("EfficientNetB5", 23.435, 10.301),
    Model("Xception", 4.751, 2.046),
    Model("SSDMobilenet", 23.778, 9.729),
    Model("EfficientNetB4", 12.088, 4.412),
    Model("BERT", 7.008, 0.159),
)
"""Table 5: the 35 models measured on an NVIDIA GTX 1080Ti; Table 1 has some of them, rounded."""
A100 = (
    Model("DenseNet121", 0.054, 10.546),
    Model("DenseNet201", 0.304, 14.345),
    Model("DenseNet169", 0.289, 13.365),
    Model("ResNet50V2", 0.135, 5.56),
    Model("EfficientNetB0", 0.115, 4.326),
    Model("ResNet101", 0.284, 8.266),
    Model("ResNet152", 0.39, 10.449),
    Model("ResNet101V2", 0.391, 8.219),
    Model("MobileNetV3Large", 0.196, 4.072),
    Model("EfficientNetB1", 0.291, 5.797),
    Model("ResNet50", 0.268, 5.172),
    Model("ResNet152V2", 0.589, 10.054),
    Model("MobileNetV2", 0.19, 2.892),
    Model("EfficientNetV2B3", 0.543, 7.596),
    Model("InceptionResNetV2", 1.112, 15.27),
    Model("EfficientNetV2B1", 0.443, 5.929),
    Model("NASNetMobile", 0.536, 6.86),
    Model("EfficientNetV2B0", 0.377, 4.272),
    Model("EfficientNetB2", 0.52, 5.333),
    Model("MobileNetV3Small", 0.315, 3.211),
    Model("InceptionV3", 0.913, 6.732),
    Model("MobileNet", 0.285, 1.901),
    Model("EfficientNetV2S", 1.454, 7.378),
    Model("EfficientNetV2B2", 0.901, 4.532),
    Model("VGG16", 0.66, 2.252),
    Model("EfficientNetB3", 1.239, 4.205),
    Model("Xception", 0.801, 2.638),
    Model("VGG19", 0.893, 2.181),
    Model("NASNetLarge", 3.464, 7.154),
    Model("EfficientNetV2M", 4.479, 6.861),
    Model("EfficientNetB4", 2.881, 4.103),
    Model("EfficientNetV2L", 7.52, 6.675),
    Model("EfficientNetB5", 6.121, 2.283),
    Model("SSDMobilenet", 19.448, 4.442),
    Model("EfficientNetB6", 9.754, 1.984),
    Model("EfficientNetB7", 16.339, 2.751),
    Model("BERT", 7.353, 0.222),
)
"""Table 6: the 37 models measured on an NVIDIA A100."""
TABLE_4 = (
    Setup(Model("ResNet50", 1.053, 5.072), 25, 8),
    Setup(model("InceptionResNetV2", GTX_1080TI), 70, 8),
)
"""Table 4: the two models of section 5.2.2."""
