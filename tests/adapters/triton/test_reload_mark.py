"""The mark that turns a change of instances into a reload."""

from __future__ import annotations

from tuner.adapters.triton.configuration import differ_in_instances_only, toggle_reload_mark

CONFIG = {"name": "m", "max_batch_size": 8, "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
TWO = {**CONFIG, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}


def test_only_instances_are_recognised() -> None:
    """Nothing else may differ, and something must."""
    assert differ_in_instances_only(CONFIG, TWO)
    assert not differ_in_instances_only(CONFIG, CONFIG)
    assert not differ_in_instances_only(CONFIG, {**TWO, "max_batch_size": 4})


def test_toggling_twice_changes_nothing() -> None:
    """The mark comes and goes without a trace, whether there were other parameters or not."""
    other = {**CONFIG, "parameters": {"threads": {"string_value": "2"}}}

    for config in (CONFIG, other):
        assert toggle_reload_mark(config) != config
        assert toggle_reload_mark(toggle_reload_mark(config)) == config
