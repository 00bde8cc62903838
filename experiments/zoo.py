"""The models that the papers measure: execution latencies ``l(b) = alpha b + beta`` on two accelerators.

The figures of Tables 4, 5 and 6 of "Symphony: Optimized DNN Model Serving using Deferred Batch
Scheduling" (arXiv 2308.07470). The SLOs of Tables 5 and 6 follow from the rule in :attr:`Model.slo_ms`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.goodput import capacity
from tuner.cluster.scenario import Network, Scenario, Session
from tuner.scheduling.cluster import linear_latency

__all__ = [
    "A100",
    "GTX_1080TI",
    "NETWORK",
    "TABLE_4",
    "Model",
    "Setup",
    "model",
    "strong",
    "weak",
    "zoo_scenario",
]

NETWORK = Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2.0)
"""The delays that the authors' scheduler allows for."""

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

    def latency(self, slo_ms: float) -> np.ndarray:
        """Return the latencies of the batches that end within an SLO.   # (B+1,) s; [0] unused."""
        return linear_latency(self.alpha_ms / 1e3, self.beta_ms / 1e3, slo_ms / 1e3)

    def session(self, slo_ms: float | None = None, **others: Any) -> Session:
        """Return a session of the model.

        Args:
            slo_ms: Its SLO; None for that of the tables.
            **others: Further fields of the session.
        """
        slo = float(self.slo_ms if slo_ms is None else slo_ms)
        return Session(name=self.name, alpha_ms=self.alpha_ms, beta_ms=self.beta_ms, slo_ms=slo, **others)


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


def zoo_scenario(requests: float, *, least: float = 0.0, **given: Any) -> Scenario:
    """Return a cluster with the delays of the authors' network, which is measured over a number of requests.

    Args:
        requests: About how many the accelerators can serve, at best, while is measured.
        least: s that are measured at least.
        **given: Further fields of the scenario.
    """
    empty = Scenario(rate=1000.0, network=NETWORK, **{"warmup_seconds": 1.0, **given})
    return empty.model_copy(update={"seconds": max(requests / capacity(empty), least)})


LATENCIES: dict[str, tuple[tuple[float, float] | None, tuple[float, float] | None]] = {
    "NASNetMobile": ((0.57, 14.348), (0.536, 6.86)),
    "MobileNetV3Small": ((0.335, 5.35), (0.315, 3.211)),
    "DenseNet169": ((1.271, 13.618), (0.289, 13.365)),
    "DenseNet121": ((1.061, 10.312), (0.054, 10.546)),
    "DenseNet201": ((1.733, 15.687), (0.304, 14.345)),
    "EfficientNetV2B0": ((1.006, 7.493), (0.377, 4.272)),
    "MobileNetV3Large": ((0.82, 5.256), (0.196, 4.072)),
    "InceptionV3": ((1.964, 8.771), (0.913, 6.732)),
    "EfficientNetV2B1": ((1.661, 7.247), (0.443, 5.929)),
    "ResNet50V2": ((1.409, 5.947), (0.135, 5.56)),
    "ResNet152V2": ((3.471, 13.049), (0.589, 10.054)),
    "ResNet101V2": ((2.438, 9.095), (0.391, 8.219)),
    "InceptionResNetV2": ((5.09, 18.368), (1.112, 15.27)),
    "EfficientNetB0": ((1.569, 5.586), (0.115, 4.326)),
    "MobileNetV2": ((1.18, 3.483), (0.19, 2.892)),
    "ResNet101": ((3.164, 9.065), (0.284, 8.266)),
    "EfficientNetB1": ((2.489, 6.674), (0.291, 5.797)),
    "ResNet50": ((2.05, 5.378), (0.268, 5.172)),
    "EfficientNetV2B2": ((2.254, 5.896), (0.901, 4.532)),
    "VGG19": ((3.059, 7.857), (0.893, 2.181)),
    "ResNet152": ((4.599, 11.212), (0.39, 10.449)),
    "MobileNet": ((1.009, 2.39), (0.285, 1.901)),
    "VGG16": ((2.734, 5.786), (0.66, 2.252)),
    "EfficientNetB2": ((3.446, 5.333), (0.52, 5.333)),
    "EfficientNetV2B3": ((4.072, 5.981), (0.543, 7.596)),
    "NASNetLarge": ((17.656, 18.952), (3.464, 7.154)),
    "EfficientNetV2S": ((8.463, 8.862), (1.454, 7.378)),
    "EfficientNetB3": ((5.924, 4.849), (1.239, 4.205)),
    "EfficientNetV2L": ((40.313, 28.208), (7.52, 6.675)),
    "EfficientNetV2M": ((22.619, 14.786), (4.479, 6.861)),
    "EfficientNetB5": ((23.435, 10.301), (6.121, 2.283)),
    "Xception": ((4.751, 2.046), (0.801, 2.638)),
    "SSDMobilenet": ((23.778, 9.729), (19.448, 4.442)),
    "EfficientNetB4": ((12.088, 4.412), (2.881, 4.103)),
    "BERT": ((7.008, 0.159), (7.353, 0.222)),
    "EfficientNetB6": (None, (9.754, 1.984)),
    "EfficientNetB7": (None, (16.339, 2.751)),
}
"""alpha and beta, ms, on an NVIDIA GTX 1080Ti and on an A100; None where it was not measured."""


def _zoo(column: int) -> tuple[Model, ...]:
    """Return the models of one accelerator as the tables have them: those first that batching helps most."""
    models = [Model(name, *pair) for name, pairs in LATENCIES.items() if (pair := pairs[column])]
    return tuple(sorted(models, key=lambda one: one.batching, reverse=True))


GTX_1080TI = _zoo(0)
"""Table 5: 35 models; Table 1 has some of them, rounded."""
A100 = _zoo(1)
"""Table 6: 37 models."""
TABLE_4 = (
    Setup(Model("ResNet50", 1.053, 5.072), 25, 8),
    Setup(model("InceptionResNetV2", GTX_1080TI), 70, 8),
)
"""Table 4: the two models of section 5.2.2."""
