"""Contextual safe Bayesian optimisation: BoTorch's Gaussian process, asked only for what looks safe.

As in OnlineTune (Zhang et al., SIGMOD'22, arXiv 2203.14473, sections 5 and 6) and SafeOpt, with a Gaussian
process (Matern 5/2) over the logarithm of the cost; its inputs are the knobs and, as context, the load:

* a configuration is safe if the upper bound of its cost keeps the SLO (cost at most 1);
* among those that are safe, the one with the least lower bound is tried next;
* where none is safe, all are asked, because one that keeps the SLO has to be found first.

Where we differ: OnlineTune clusters contexts, with a process for each; here one process has all loads, which
differ in one number. Its rules from experts are the guard's business (``tuner/control``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tuner.agents.agent import State
from tuner.agents.bookkeeper import Bookkeeper, Parameters
from tuner.agents.choice import allowed_numbers
from tuner.agents.log_cost import log_costs
from tuner.agents.rules import check_rules
from tuner.errors import InvalidInput
from tuner.knobs import KnobSpace
from tuner.plugin import install_text

__all__ = ["SafeGp", "SafeGpParameters"]

OCTAVE_LEVELS = 8.0
"""Load levels that count as much as the whole range of a knob."""
REFIT = 1.2
"""The process is fitted again after this many times as many windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SafeGpParameters(Parameters):
    """The constants of the search."""

    bound: float = 2.0
    """Standard deviations between the mean and either bound (the square root of beta)."""
    history: int = 100
    """Points that the process is fitted to at most: those whose load is nearest, newest levels first. Of a
    level that does not fit, half are the cheapest and half a sample of the others."""

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rules(
            self,
            bound=(self.bound >= 0, "at least 0"),
            history=(self.history >= 2, "at least 2"),
        )


class SafeGp(Bookkeeper[SafeGpParameters]):
    """The agent; it never stops to explore what is safe.

    Raises:
        InvalidInput: BoTorch is not installed.
    """

    name = "safe_gp"
    constants: ClassVar[type[Any]] = SafeGpParameters

    def __init__(
        self, space: KnobSpace, parameters: SafeGpParameters | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(space, parameters, seed=seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of how it uses torch
                import botorch.fit
                import botorch.models  # noqa: F401
        except ImportError as error:
            raise InvalidInput(
                "agent safe_gp", "BoTorch is not installed", install_text("research")
            ) from error
        self._features = space.features().astype(np.float64)
        self._fitted: dict[str, Any] | None = None
        self._fitted_to = 0  # windows

    def select(self, state: State, allowed: np.ndarray | None = None) -> int:
        """Choose the configuration with the least lower bound among those that are safe, if any is."""
        allowed = allowed_numbers(self.space, allowed)
        if not self.records.levels:
            return self._best_unmeasured(state, allowed)
        distinct = np.unique(self.space.canonical[allowed])
        mean, deviation = self._predict(state.level, distinct)
        high, low = (mean + sign * self.parameters.bound * deviation for sign in (1.0, -1.0))
        safe = high <= 0.0
        chosen = distinct[np.argmin(np.where(safe | ~safe.any(), low, np.inf))]
        return int(allowed[np.flatnonzero(self.space.canonical[allowed] == chosen)[0]])

    def _predict(self, level: int, configurations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the logarithm of costs.   # (n,), (n,)."""
        import torch
        from botorch.exceptions.warnings import InputDataWarning
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
        from gpytorch.mlls import ExactMarginalLogLikelihood

        places, logs, noise = self._measured(level)
        torch.set_num_threads(1)  # more only wait for each other on such small matrices
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputDataWarning)  # a few points have no unit variance
            process = SingleTaskGP(
                torch.from_numpy(places),
                torch.from_numpy(logs[:, None]),
                train_Yvar=torch.from_numpy(noise[:, None]),
                covar_module=get_covar_module_with_dim_scaled_prior(
                    ard_num_dims=places.shape[1], use_rbf_kernel=False
                ),
            )
            learned = {"mean": process.mean_module, "covar": process.covar_module}
            windows = sum(int(self.records[other].count.sum()) for other in self.records.levels)
            if self._fitted is None or windows >= REFIT * self._fitted_to:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(process.likelihood, process))
                self._fitted = {name: dict(part.state_dict()) for name, part in learned.items()}
                self._fitted_to = windows
            else:
                for name, part in learned.items():
                    part.load_state_dict(self._fitted[name])
            context = np.full((configurations.size, 1), level / OCTAVE_LEVELS)
            asked = np.concatenate([self._features[configurations], context], axis=1)
            with torch.no_grad():
                answer = process.posterior(torch.from_numpy(asked))
        return answer.mean.numpy()[:, 0], np.sqrt(answer.variance.numpy()[:, 0])

    def _measured(self, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return places, logarithms of costs and variances of their noise.   # (n, k + 1), (n,), (n,)."""
        order = {other: number for number, other in enumerate(self.records.levels)}
        rows: list[tuple[int, int]] = []
        for other in sorted(order, key=lambda other: (abs(other - level), -order[other])):
            left = self.parameters.history - len(rows)
            rows += [(other, int(c)) for c in self.records[other].remembered(left, self._generator)]
        levels, numbers = np.array(rows).T
        costs = np.array([self.records[other].cost[c] for other, c in rows])
        counts = np.array([self.records[other].count[c] for other, c in rows])
        places = np.concatenate([self._features[numbers], levels[:, None] / OCTAVE_LEVELS], axis=1)
        return places, log_costs(costs), self.parameters.noise**2 / counts
