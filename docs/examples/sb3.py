"""Stable-Baselines3 tunes a simulated TensorFlow Serving: DQN and PPO, on the environment as it is.

    pip install stable-baselines3
    python sb3.py --windows 4000

Prints the exact cost of what each would run after training, beside that of the best configuration and of a
random choice. A cost is the 95th percentile of the latency over the SLO. Each is given 4,000 windows; the
agents of servetune are given tens (``tuner compare``).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

RATE = 17.0
"""Requests/s; a third of the configurations cannot serve them."""
GRIDS = {
    "request_parallelism": (1.0, 2.0, 3.0, 4.0, 6.0, 8.0),
    "inter_op": (1.0, 2.0, 4.0),
    "intra_op": (1.0, 2.0, 5.0, 8.0),
}
"""72 of the 1,331 configurations: networks with an output for each need many windows per output."""


def make(episode_windows: int = 20) -> gymnasium.Env[np.ndarray, np.int64]:
    """Make the environment; importing ``tuner.envs`` through the id registers it."""
    return gymnasium.make(
        "tuner.envs:tuner/TFServingCPU-v0",
        rate=RATE,
        grids=GRIDS,
        window=20.0,
        episode_windows=episode_windows,
    )


def train(windows: int, seed: int) -> Mapping[str, BaseAlgorithm]:
    """Train both; rewards of consecutive windows hardly depend on each other, so both look ahead little."""
    dqn = DQN(
        "MlpPolicy",
        make(),
        gamma=0.0,
        learning_starts=200,
        exploration_fraction=0.6,
        train_freq=1,
        learning_rate=1e-3,
        seed=seed,
        device="cpu",
    )
    ppo = PPO("MlpPolicy", make(), gamma=0.0, n_steps=256, learning_rate=1e-3, seed=seed, device="cpu")
    return {"dqn": dqn.learn(windows), "ppo": ppo.learn(windows)}


def chosen(model: BaseAlgorithm, seed: int) -> int:
    """Return the configuration that a trained model goes to."""
    env = make()
    observation, _ = env.reset(seed=seed)
    action = np.int64(0)
    for _ in range(5):
        action = np.int64(model.predict(observation, deterministic=True)[0])
        observation, *_ = env.step(action)
    env.close()
    return int(action)


def main(windows: int, seed: int) -> dict[str, float]:
    """Train, print and return what each configuration costs."""
    torch.set_num_threads(1)  # threads only wait for each other on such small matrices
    env = make()
    space = env.get_wrapper_attr("space")
    exact = env.get_wrapper_attr("expected_costs")(RATE)
    numbers = {"best": int(np.argmin(exact))}
    numbers |= {name: chosen(model, seed) for name, model in train(windows, seed).items()}
    for name, number in numbers.items():
        print(f"{name:6} {exact[number]:6.3f}  {space.format(space.decode(number))}")
    print(f"random {exact.mean():6.3f}  in the mean of all {space.size}")
    return {name: float(exact[number]) for name, number in numbers.items()} | {"random": float(exact.mean())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Stable-Baselines3 on a simulated TensorFlow Serving.")
    parser.add_argument("--windows", type=int, default=4000, help="how many each is trained for")
    parser.add_argument("--seed", type=int, default=0, help="of training and arrivals")
    arguments = parser.parse_args()
    main(arguments.windows, arguments.seed)
