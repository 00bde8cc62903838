"""Gymnasium environments over any adapter, and the simulator behind the simulated ones.

Importing this registers them: ``gymnasium.make("tuner.envs:tuner/TritonCPU-v0")``.
"""

import gymnasium

gymnasium.register(
    "tuner/TritonCPU-v0",
    entry_point="tuner.envs.triton_cpu:triton_cpu",
    vector_entry_point="tuner.envs.triton_cpu:triton_cpu_vector",
)
gymnasium.register(
    "tuner/Cluster-v0",
    entry_point="tuner.envs.cluster:cluster",
    vector_entry_point="tuner.envs.cluster:cluster_vector",
)
gymnasium.register("tuner/Live-v0", entry_point="tuner.envs.live:live", nondeterministic=True)
gymnasium.register(
    "tuner/TFServingCPU-v0",
    entry_point="tuner.envs.tfserving_cpu:tfserving_cpu",
    vector_entry_point="tuner.envs.tfserving_cpu:tfserving_cpu_vector",
)
gymnasium.register(
    "tuner/TFServingGPU-v0",
    entry_point="tuner.envs.tfserving_gpu:tfserving_gpu",
    vector_entry_point="tuner.envs.tfserving_gpu:tfserving_gpu_vector",
)
