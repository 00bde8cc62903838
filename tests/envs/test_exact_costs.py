"""The cache of exact costs: what is damaged there is computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from platformdirs import user_cache_path

from tuner.envs import exact_costs as module


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_a_damaged_table_is_computed_again(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A power failure may leave an empty file."""
    monkeypatch.setattr(module, "_key", lambda *_: "key")
    file = user_cache_path("servetune") / "costs" / "key.npy"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)

    with pytest.raises(_Computed):
        module.every_configuration(_Simulator(), 1.0, 1.0, 1)  # type: ignore[arg-type]


class _Computed(Exception):
    pass


class _Simulator:
    size = 1

    def step(self, *_: object) -> Path:
        raise _Computed
