"""Whatever stands in the daemon's file: it is read, or refused in a sentence that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.control.daemon.config import DaemonConfig
from tuner.errors import TunerError
from tuner.files.yaml_file import load_yaml

NAMES = st.sampled_from(
    [
        "state",
        "keep",
        "http",
        "targets",
        "name",
        "url",
        "slo",
        "mode",
        "window",
        "knobs",
        "guard",
        "least",
        "days",
        "maintenance",
        "from",
        "to",
        "sli",
        "seed",
        "time_zone",
        "canary",
        "listen",
        "max_batch_size",
        "x",
    ]
)
GOOD = ["sim://mlp", "p95=30ms", "apply", "2s", "10d", "Europe/Berlin", "127.0.0.1:0", "24:00", "mon-fri"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.sampled_from(GOOD),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
TARGET = {"name": "a", "url": "sim://mlp", "slo": "p95=30ms"}


def read(folder: Path, text: str) -> str:
    """Read a file; return why it was refused, if it was."""
    path = folder / "servetune.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load_yaml(path, DaemonConfig)
    except TunerError as error:
        return str(error)
    return ""


@given(st.text(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text(tmp_path: Path, text: str) -> None:
    """No crash, and no text is a daemon's file by chance."""
    assert "servetune.yaml" in read(tmp_path, text.encode("utf-8", "ignore").decode())


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.dictionaries(NAMES, VALUES, max_size=4))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values(tmp_path: Path, top: dict[str, Any], changed: dict[str, Any]) -> None:
    """A good file with anything in any place."""
    refused = read(tmp_path, yaml.safe_dump({"targets": [TARGET | changed]} | top, allow_unicode=True))

    assert not refused or "servetune.yaml" in refused
