"""Region-based reinforcement learning, in its default form; to be read in this order.

* :mod:`~tuner.agents.rrl.parameters`: the constants.
* :mod:`~tuner.agents.rrl.agent`: the loop of the paper's algorithm 1: choose, measure, learn.
* :mod:`~tuner.agents.rrl.exploration`: eq. 3, from perceived costs to probabilities.
* :mod:`~tuner.agents.rrl.perception`: what each configuration is thought to cost, and why not as in the
  paper.
* :mod:`~tuner.agents.rrl.smoother`: what it costs by the prior and all that was measured.
* :mod:`~tuner.agents.rrl.measured`: the windows that this rests on.
* :mod:`~tuner.agents.rrl.smoothing`: the formulas of the Gaussian process that predicts the rest (with
  ``covariance``).
* :mod:`~tuner.agents.rrl.neural`: the estimator, a network that says what to expect.
* :mod:`~tuner.agents.rrl.prior`: what any prior says; a start from a simulation or another server.
* :mod:`~tuner.agents.rrl.risk`: which configurations may be explored.
* :mod:`~tuner.agents.rrl.lookahead`: what it is worth to explore one of them.
* :mod:`~tuner.agents.rrl.rise`: whether the load may rise soon.
* :mod:`~tuner.agents.rrl.drift`: notices that the machine has changed.

Beside it, and loaded only when asked for (:mod:`~tuner.agents.rrl.forms`): :mod:`~tuner.agents.rrl.table`,
the paper's form, and :mod:`~tuner.agents.rrl.network`, its estimation function.
"""

from tuner.agents.rrl.agent import RRL
from tuner.agents.rrl.parameters import RRLParameters

__all__ = ["RRL", "RRLParameters"]
