"""What other libraries may do with every environment: render it, pickle it, get its arguments wrong."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tuner.envs.picture import draw_picture
from tuner.envs.serving import FEATURES, GPU, ServingEnv
from tuner.envs.tfserving_gpu import tfserving_gpu
from tuner.errors import InvalidInput
from tuner.objective import Objective, parse_slo
from tuner.setting import Load, Setting

NAME = "tuner.envs:tuner/TritonCPU-v0"
PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def make(**arguments: Any) -> gym.Env[Any, Any]:
    return gym.make(NAME, **{"rate": 150.0, "window": 0.5, **arguments})


def test_text_says_what_the_last_window_showed() -> None:
    """Load, latency beside its bound, cost and configuration."""
    env = make(render_mode="ansi")
    env.reset(seed=1)
    env.step(np.int64(20))

    text = env.render()

    assert isinstance(text, str)
    assert re.match(r"window 1: \d+ requests/s, p95 [\d.]+m?s of 30ms, cost [\d.]+, max_batch_size=2", text)


def test_picture_changes_with_the_windows() -> None:
    """An array as gymnasium wants it."""
    env = make(render_mode="rgb_array")
    env.reset(seed=1)
    first: Any = env.render()
    env.step(np.int64(40))
    second: Any = env.render()

    assert first.dtype == np.uint8
    assert first.shape == second.shape == (160, 240, 3)
    assert (first != second).any()


@pytest.mark.parametrize("carry_over", [True, False])
def test_each_environment_of_a_vector_renders(carry_over: bool) -> None:
    """As it does alone, also after the vector was pickled; without a mode there is nothing."""
    how: dict[str, Any] = {"num_envs": 2, "vectorization_mode": "vector_entry_point", "window": 0.5}
    envs = gym.make_vec(NAME, render_mode="ansi", carry_over=carry_over, rate=150.0, **how)
    again = pickle.loads(pickle.dumps(envs))  # noqa: S301 - our own
    for one in (envs, again):
        one.reset(seed=1)
        one.step(np.array([0, 20]))

    texts: Any = envs.render()

    assert ["max_batch_size=2" in text for text in texts] == [False, True]
    assert again.render() == texts
    assert {"ansi", "rgb_array"} <= {*envs.metadata["render_modes"]}
    assert gym.make_vec(NAME, carry_over=carry_over, **how).render() is None


def test_colours_say_whether_the_slo_was_kept() -> None:
    """Blue where it was, vermilion where not, and no column where nothing is known."""
    picture = draw_picture([0.5, 2.0, float("nan")], [0.0, 1.0])

    assert picture[105, 0].tolist() == [0, 114, 178]
    assert picture[105, 5].tolist() == [213, 94, 0]
    assert picture[105, 10].tolist() == [255, 255, 255]


def test_unknown_way_of_rendering() -> None:
    """Those that there are stand in the message."""
    from tuner.envs.triton_cpu import triton_cpu

    with pytest.raises(InvalidInput, match="render_mode: there is no 'film'; use one of ansi, rgb_array"):
        triton_cpu(render_mode="film")


@pytest.mark.parametrize("action", [-1, 72, 1.5, float("nan"), "3", None])
def test_actions_out_of_range_are_refused(action: Any) -> None:
    """Nothing is applied and no window passes."""
    env = make()
    env.reset(seed=1)
    inner = env.unwrapped
    assert isinstance(inner, ServingEnv)
    before = inner.backend.current()

    with pytest.raises(ValueError, match=r"action: .* is not a whole number in 0\.\.\d+"):
        env.step(action)

    assert inner.backend.current() == before


@pytest.mark.parametrize("number", [-1, 72, 1.5, "3"])
def test_a_first_configuration_that_is_none_is_refused_by_its_name(number: Any) -> None:
    """It is an option of the reset and no action, and the episode before goes on."""
    env = make()
    env.reset(seed=1)

    with pytest.raises(InvalidInput, match=r"options\['configuration'\]: .* is not a whole number in 0\.\."):
        env.reset(options={"configuration": number})

    assert env.step(np.int64(0))[4]["measurement"].start > 0


@pytest.mark.parametrize("carry_over", [True, False])
def test_a_vector_says_what_is_wrong_with_actions_and_seeds(carry_over: bool) -> None:
    """One for each environment, after a reset; numbers of numpy are numbers."""
    how: dict[str, Any] = {"num_envs": 2, "vectorization_mode": "vector_entry_point", "window": 0.5}
    envs = gym.make_vec(NAME, carry_over=carry_over, rate=150.0, **how)
    with pytest.raises(gym.error.ResetNeeded, match="call reset first"):
        envs.step(np.array([0, 1]))
    first, _ = envs.reset(seed=np.int64(7))  # type: ignore[arg-type]  # of numpy
    again, _ = envs.reset(seed=np.array([7, 8]))  # type: ignore[arg-type]  # of numpy

    assert np.array_equal(first, again)
    for wrong in ([0], [0, 1, 2]):
        with pytest.raises(InvalidInput, match=f"actions: {len(wrong)} are given for 2 environments"):
            envs.step(np.array(wrong))
        with pytest.raises(InvalidInput, match=f"seed: {len(wrong)} are given for 2 environments"):
            envs.reset(seed=wrong)  # type: ignore[arg-type]  # gymnasium declares one number
    envs.close()
    with pytest.raises(gym.error.ResetNeeded, match="call reset first"):
        envs.step(np.array([0, 1]))


def test_unpickling_makes_it_again() -> None:
    """With the same arguments, also a wrapped one; from the same seed it shows the same."""
    env = make(render_mode="ansi", slo="p99=20ms")
    again = pickle.loads(pickle.dumps(env))  # noqa: S301  # our own

    assert again.render_mode == "ansi"
    assert again.unwrapped.objective == env.unwrapped.objective  # type: ignore[attr-defined]  # ServingEnv's
    assert np.array_equal(env.reset(seed=3)[0], again.reset(seed=3)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "fast"}, "^objective: 'fast'"),
        ({"slo": "p95"}, "^slo: 'p95'"),
        ({"slo": 0.03}, "^slo: 0.03 is no SLO; write p95=30ms"),
        ({"workload": 3}, "^workload: 3 is no workload"),
        ({"setting": "p95=30ms"}, "^setting: 'p95=30ms' is no `Setting`"),
        ({"change_cost": -1.0}, "^change_cost"),
        ({"change_cost": "1"}, "^change_cost: '1' is not a weight"),
        (
            {"rate": [100, 200]},
            r"^rate: \[100, 200\] is not a rate or range .*; write 200.0 or \(100.0, 400.0\)",
        ),
        ({"episode_windows": 2.5}, "^episode_windows: 2.5 is not a whole number of at least 1"),
        ({"episode_windows": True}, "^episode_windows: True is not a whole number of at least 1"),
    ],
)
def test_errors_name_parameters(arguments: dict[str, Any], message: str) -> None:
    """As the caller wrote them, not as options of the command line."""
    with pytest.raises(InvalidInput, match=message) as caught:
        make(**arguments)

    assert "--" not in str(caught.value)


def test_the_page_lists_the_observation() -> None:
    """Every entry with its bounds."""
    rows = re.findall(r"^\| (\d) \| (\w+) \| .* \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)

    assert [(name, float(low), float(high)) for _, name, low, high in rows] == [*FEATURES, GPU]


def test_use_of_the_gpu_is_observed_where_it_is_wanted() -> None:
    """As entry 8, before the knobs."""
    plain = tfserving_gpu(window=0.5, rate=20.0)
    seen = tfserving_gpu(window=0.5, rate=20.0, observe_gpu=True)

    without, with_gpu = plain.reset(seed=1)[0], seen.reset(seed=1)[0]

    assert 0 < with_gpu[8] <= 1
    assert np.array_equal(np.delete(with_gpu, 8), without)


@pytest.mark.parametrize("name", ["TritonCPU", "TFServingCPU", "TFServingGPU"])
def test_arrivals_at_a_live_server_are_refused(name: str) -> None:
    """A setting that was made for a run has another load than the environment's own, which was simulated."""
    slo = Objective(slo=parse_slo("p95=30ms"))
    setting = Setting(objective=slo, load=Load(arrival="gamma:0.5:100"))

    with pytest.raises(InvalidInput, match="arrival: is for requests of our own to a live server"):
        gym.make(f"tuner.envs:tuner/{name}-v0", setting=setting)
