"""Policies in the form of their papers: names that stand for a policy with options.

The policies' own defaults are those of the authors' later code, or go beyond the paper. Which form a figure used
should show in its name.

| preset | stands for |
|---|---|
| ``symphony_paper`` | symphony: schedulable above beta * lambda requests or at ``sched_at``, pruned as in section 4.3: only what can no longer end in time alone is given up |
| ``kairos_paper`` | kairos: the matching of eq. 8 with predictions taken for exact, without the weight of their risk |
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.scheduling.catalogue import check_unshared

__all__ = ["PRESETS", "written_out"]

PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "symphony_paper": ("symphony", {"schedulable": "beta_lambda", "drop": "lazy", "deferral": 1.0}),
    "kairos_paper": ("kairos", {"spread": 0.0}),
}
"""By name the policy and its options."""


def written_out(fields: Any) -> Any:
    """Return the fields of a file with the policy and the options that its preset stands for.

    Args:
        fields: As the file has them. What is no preset stays, and is checked by others.

    Raises:
        InvalidInput: An installed policy has the name of the preset.
    """
    if not isinstance(fields, Mapping) or not isinstance(fields.get("policy"), str):
        return fields
    name = fields["policy"]
    if name not in PRESETS:
        return fields
    check_unshared(name)
    policy, options = PRESETS[name]
    given = fields.get("options", {})
    merged = {**options, **given} if isinstance(given, Mapping) else given
    return {**fields, "policy": policy, "options": merged}
