"""Bayesian optimisation with a Gaussian process: Optuna's (Matern 5/2, log expected improvement).

The process is fitted, with noise, to the logarithms of the mean costs of at most ``history`` configurations.
The time of a fit grows with the cube of their number, so the limit keeps decisions short however many windows
there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tuner.agents.rivals.optuna_search import OptunaParameters, OptunaSearch
from tuner.knobs import KnobSpace

if TYPE_CHECKING:
    import optuna

__all__ = ["Gp", "GpParameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpParameters(OptunaParameters):
    """The constants of the search."""

    history: int = 100
    """Configurations that the process is fitted to at most: the cheapest, and a sample of the others."""
    tries: int = 2
    """Proposals that it is asked for, at most, to find one that was not measured yet."""


class Gp(OptunaSearch):
    """The agent."""

    name = "gp"
    constants: ClassVar[type[Any]] = GpParameters

    def __init__(self, space: KnobSpace, parameters: GpParameters | None = None, *, seed: int = 0) -> None:
        import torch

        # More threads only wait for each other on such small matrices: a decision took 20 times as long.
        torch.set_num_threads(1)
        super().__init__(space, parameters, seed=seed)

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=self._told, deterministic_objective=False
        )
