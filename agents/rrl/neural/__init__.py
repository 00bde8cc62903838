"""RRL's neural latency estimator: what every configuration costs, said before anything was tried.

A network that was trained on randomised simulated servers. Read in this order.

* :mod:`~tuner.agents.rrl.neural.knowledge`: what is known of a server before a configuration is tried.
* :mod:`~tuner.agents.rrl.neural.queueing`: the formulas of queueing theory that the network corrects.
* :mod:`~tuner.agents.rrl.neural.inputs`: the network's inputs.
* :mod:`~tuner.agents.rrl.neural.network`: the network, evaluated in numpy, and its weights.
* :mod:`~tuner.agents.rrl.neural.estimator`: latencies and use of every configuration, with their uncertainty.
* :mod:`~tuner.agents.rrl.neural.prior`: the estimator as RRL uses it: it watches a server and says what each
  configuration costs; begin here if you come from :mod:`~tuner.agents.rrl.perception`.
"""
