"""The safe search with BoTorch: which points its process is fitted to, and of what kind the process is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.agents.bed import HIGH, LOW, make_space
from tuner.agents import State
from tuner.agents.rivals.safe_gp import SafeGp, SafeGpParameters

SPACE = make_space()


@pytest.fixture(autouse=True)
def botorch() -> None:
    pytest.importorskip("botorch", reason="needs the extra research")


def measure(agent: SafeGp, level: int, costs: dict[int, float]) -> None:
    for configuration, cost in costs.items():
        state = State(level=level, configuration=configuration)
        agent.update(state, configuration, cost, state)


def test_the_cheapest_are_remembered_whatever_their_numbers() -> None:
    """Of more than the process is fitted to, half are the cheapest and half are drawn."""
    agent = SafeGp(SPACE, SafeGpParameters(history=10))
    numbers = SPACE.distinct[:30].tolist()
    measure(agent, HIGH, {c: 2.0 - 0.05 * order for order, c in enumerate(numbers)})

    _, logs, _ = agent._measured(HIGH)

    assert logs.size == 10
    assert np.sort(logs)[:5] == pytest.approx(np.log(2.0 - 0.05 * np.arange(29, 24, -1)))


def test_of_two_levels_as_near_the_newest_is_remembered() -> None:
    """It says more of the server as it is now."""
    agent = SafeGp(SPACE, SafeGpParameters(history=10))
    numbers = SPACE.distinct[:10].tolist()
    for level, cost in ((LOW - 1, 0.5), (LOW + 1, 0.9)):
        measure(agent, level, dict.fromkeys(numbers, cost))

    _, logs, _ = agent._measured(LOW)

    assert logs == pytest.approx([np.log(0.9)] * 10)


def test_the_process_is_of_the_kind_that_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matern 5/2, whatever BoTorch's default is."""
    import botorch.fit
    from gpytorch.kernels import MaternKernel

    kernels: list[Any] = []
    monkeypatch.setattr(botorch.fit, "fit_gpytorch_mll", lambda mll: kernels.append(mll.model.covar_module))
    agent = SafeGp(SPACE)
    measure(agent, HIGH, {0: 0.5, 1: 0.6})

    agent.select(State(level=HIGH, configuration=0))

    assert [(type(kernel), kernel.nu) for kernel in kernels] == [(MaternKernel, 2.5)]


def test_the_process_is_fitted_to_new_windows_when_all_its_points_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not to the first ones for ever."""
    import botorch.fit

    fits, measured = list[int](), [0]
    monkeypatch.setattr(botorch.fit, "fit_gpytorch_mll", lambda _: fits.append(measured[0]))
    agent = SafeGp(SPACE, SafeGpParameters(history=10))
    for measured[0], configuration in enumerate(SPACE.distinct[:30].tolist(), 1):
        measure(agent, HIGH, {configuration: 0.5})
        agent.select(State(level=HIGH, configuration=configuration))

    assert fits[-1] > 20


def test_between_two_fits_nothing_fitted_is_forgotten() -> None:
    """The same windows give the same predictions."""
    agent = SafeGp(SPACE)
    measure(agent, HIGH, {c: 0.2 + 0.1 * c for c in range(12)})
    numbers = np.arange(20)

    fitted, kept = agent._predict(HIGH, numbers), agent._predict(HIGH, numbers)

    np.testing.assert_allclose(kept, fitted, rtol=1e-9)
