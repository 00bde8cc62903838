"""RRL as the paper has it: a table Q(s, c) per load level, updated by regions.

In reading order:

* :mod:`~tuner.agents.rrl.table.parameters`: the constants.
* :mod:`~tuner.agents.rrl.table.perception`: eq. 1 and 2 (kernel: ``region``).
* :mod:`~tuner.agents.rrl.table.level_table`: what is known at one load level.
* :mod:`~tuner.agents.rrl.table.presets`: the paper's form, that of its authors' code, and plain Q-learning.
"""
