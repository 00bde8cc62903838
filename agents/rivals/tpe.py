"""TPE: Optuna's tree-structured Parzen estimator, which Model Analyzer's "optuna" search uses, too.

Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS'11: the configurations measured are split
into the cheapest and the rest; each group gets a density, and the proposal maximises their ratio. The
densities are over all knobs together (``multivariate``), because batch size, delay and parallelism depend on
each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.agents.rivals.optuna_search import OptunaSearch

if TYPE_CHECKING:
    import optuna

__all__ = ["Tpe"]


class Tpe(OptunaSearch):
    """The agent."""

    name = "tpe"

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=self._told, n_ei_candidates=64
        )
