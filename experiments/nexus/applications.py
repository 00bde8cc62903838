"""The seven applications of Nexus, Table 4, as sessions: a stage of a query, its SLO, and how many there are.

The paper gives three SLOs: 50 ms for the game, and 345 and 55 ms for the two stages of the traffic cameras,
as query analysis splits their 400 ms (section 7.3). They are 1.65 to 1.85 times those that Symphony's Table 5
has for these models; every other stage gets 1.75 times its own. Models are those of Table 5, on a GTX 1080Ti,
for the authors' profiles are not public; numbers of sessions are the paper's where it has them: 50 for the
game, 20 for the cameras.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tuner.experiments.zoo import GTX_1080TI, Model, model

__all__ = ["APPLICATIONS", "Application", "Stage", "needs", "stages_of"]

USUAL = 1.75
"""SLO of a stage, relative to that of its model in Table 5."""
ZIPF = 0.9
"""How unequal the streams of an application are (section 7.3.1, of the game's)."""


class Stage(NamedTuple):
    """A stage of a query."""

    model: Model
    slo_ms: float

    @property
    def peak(self) -> float:
        """Requests/s of an accelerator that executes batches of half the SLO."""
        batch = max((self.slo_ms / 2 - self.model.beta_ms) / self.model.alpha_ms, 1.0)
        return 1e3 * batch / (self.model.alpha_ms * batch + self.model.beta_ms)


class Application(NamedTuple):
    """An application: as many streams of video, each of which has a session for every stage."""

    name: str
    streams: int
    stages: tuple[tuple[str, float | None], ...]
    """(model, SLO in ms); None for the usual one."""


DETECT = "SSDMobilenet"
APPLICATIONS = (
    Application("game", 50, (("ResNet50", 50.0),)),
    Application("traffic", 10, ((DETECT, 345.0), ("InceptionV3", 55.0))),
    Application("dance", 5, ((DETECT, None), ("ResNet101", None))),
    Application("bb", 5, ((DETECT, None), ("MobileNetV2", None), ("VGG16", None))),
    Application(
        "bike", 5, ((DETECT, None), ("DenseNet121", None), ("MobileNet", None), ("ResNet50V2", None))
    ),
    Application(
        "amber", 5, ((DETECT, None), ("InceptionV3", None), ("DenseNet121", None), ("MobileNet", None))
    ),
    Application(
        "logo",
        5,
        ((DETECT, None), ("EfficientNetB0", None), ("ResNet101", None), ("MobileNet", None), ("VGG16", None)),
    ),
)


def stages_of(application: Application) -> list[Stage]:
    """Return the stages with their models and SLOs."""
    found = [(model(name, GTX_1080TI), slo) for name, slo in application.stages]
    return [Stage(one, USUAL * one.slo_ms if slo is None else slo) for one, slo in found]


def needs(application: Application) -> np.ndarray:
    """Return each session's share of what the application needs of accelerators.   # (streams, stages)."""
    weights = np.arange(1, application.streams + 1) ** -ZIPF
    shares = np.repeat(weights[:, None], len(application.stages), axis=1)
    return np.asarray(shares / shares.sum())
