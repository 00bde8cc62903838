"""How the stand-in is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.adapters.tfserving.standin.flags import common_batching


def test_batch_threads_that_no_server_starts_with(tmp_path: Path) -> None:
    """A field that is set counts, as for TensorFlow Serving; the server chooses only where there is none."""
    file = tmp_path / "batching.pbtxt"
    file.write_text("num_batch_threads { value: 0 }")

    with pytest.raises(ValueError, match="num_batch_threads must be positive; was 0"):
        common_batching(str(file))

    file.write_text('thread_pool_name { value: "pool" }')
    assert not common_batching(str(file)).HasField("num_batch_threads")
    assert common_batching("") is None
