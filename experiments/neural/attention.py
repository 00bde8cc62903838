"""A network that reads windows: what the windows seen so far showed bears on every other configuration.

An attentive neural process (Kim et al., ICLR'19). The network that comes with the package is told of one
window, and says in advance what the others will teach (its factors); this one looks at each of them.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from tuner.agents.rrl.neural.inputs import INPUTS, NAMES
from tuner.agents.rrl.neural.network import OUTPUTS, WIDTH

__all__ = ["Attention"]

KNOBS = tuple(column for column, name in enumerate(NAMES) if name == "knobs")
"""Columns of a row that describe the configuration, not its server."""
HEADS = 6
HIDDEN, TOKEN = 192, 96
"""Widths of the layers, and of what stands for a window."""
NEVER = -1e9
"""The score of a place without a window."""


class Attention(nn.Module):
    """Outputs like those of the package's network, from rows and from windows of the same server."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU())
        self.place = nn.Sequential(nn.Linear(len(KNOBS), TOKEN), nn.ReLU(), nn.Linear(TOKEN, TOKEN))
        self.window = nn.Sequential(
            nn.Linear(len(KNOBS) + 2 * OUTPUTS, TOKEN), nn.ReLU(), nn.Linear(TOKEN, TOKEN), nn.ReLU()
        )
        self.value = nn.Linear(TOKEN, TOKEN)
        self.output = nn.Sequential(
            nn.Linear(HIDDEN + 2 * TOKEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)
        )

    def forward(
        self, rows: torch.Tensor, places: torch.Tensor, shown: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        """Return what is expected of each row.   # (g, n, WIDTH).

        Args:
            rows: Scaled inputs of the configurations asked for.   # (g, n, INPUTS)
            places: Scaled inputs of those that windows were seen of.   # (g, m, INPUTS), m >= 1
            shown: What those windows showed, relative to the formulas; NaN where nobody measured it.
                # (g, m, OUTPUTS)
            seen: 1 where there is a window, 0 where the place is empty.   # (g, m)
        """
        groups, asked = rows.shape[:2]
        knobs = places[..., KNOBS]
        known = torch.isfinite(shown).to(rows.dtype)
        windows = self.window(torch.cat([knobs, torch.nan_to_num(shown), known], dim=-1))
        query, key = self._heads(self.place(rows[..., KNOBS])), self._heads(self.place(knobs))
        score = query @ key.transpose(-1, -2) / math.sqrt(TOKEN // HEADS)
        score = score.masked_fill(seen[:, None, None, :] == 0, NEVER)
        # One more place, which says nothing: nobody must listen to a window, and there may be none.
        score = torch.cat([score, torch.zeros_like(score[..., :1])], dim=-1)
        near = score.softmax(dim=-1)[..., :-1] @ self._heads(self.value(windows))
        near = near.transpose(1, 2).reshape(groups, asked, TOKEN)
        everywhere = (windows * seen[..., None]).sum(dim=1) / (1.0 + seen.sum(dim=1, keepdim=True))
        everywhere = everywhere[:, None].expand(groups, asked, TOKEN)
        outputs: torch.Tensor = self.output(torch.cat([self.row(rows), near, everywhere], dim=-1))
        return outputs

    @staticmethod
    def _heads(vectors: torch.Tensor) -> torch.Tensor:
        """Split vectors among the heads.   # (g, HEADS, n, TOKEN / HEADS)."""
        return vectors.reshape(*vectors.shape[:2], HEADS, -1).transpose(1, 2)
