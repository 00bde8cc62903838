"""Every option of a target is documented, with its default."""

from __future__ import annotations

from collections.abc import Mapping

from tests.docs.page import ROOT
from tuner.adapters import schemes
from tuner.adapters.connection.address import Option
from tuner.adapters.connection.security import SECURITY
from tuner.adapters.connection.target import LOADING
from tuner.adapters.dispatch.client import OPTIONS, PORT
from tuner.adapters.replicas.targets import OPTION, REPLICAS
from tuner.adapters.tfserving.target import FORM as TFSERVING
from tuner.adapters.triton.target import FORM as TRITON
from tuner.envs.simulator.backend import OPTIONS as SIMULATED

PAGE = ROOT / "docs" / "attach.md"
HEAD = """\
| target | option | default | |
|---|---|---|---|
"""
TRITONS = f"`triton://HOST:{TRITON.port}/MODEL`"
TFSERVINGS = f"`tfserving://HOST:{TFSERVING.port}/MODEL`"
OPTIONS_OF: Mapping[str, Mapping[str, Option]] = {
    TRITONS: {**TRITON.options, OPTION: REPLICAS},
    TFSERVINGS: TFSERVING.options,
    "both": {**LOADING, **SECURITY},
    f"`dispatch://HOST:{PORT}`": OPTIONS,
    "`sim://MODEL`": SIMULATED,
}


def table() -> str:
    """The table in docs/attach.md."""
    lines = [HEAD]
    for target, options in OPTIONS_OF.items():
        for name, option in options.items():
            default = f"`{option.default}`" if option.default else ""
            lines.append(f"| {target} | `{name}` | {default} | {option.meaning} |\n")
    return "".join(lines)


def test_the_documentation_lists_them() -> None:
    """Put this table in the place of the one that is there."""
    assert table() in PAGE.read_text(), table()


def test_no_kind_of_target_is_left_out() -> None:
    """Of those that the package itself brings."""
    named = {target.strip("`").partition("://")[0] for target in OPTIONS_OF} - {"both"}

    assert named <= {*schemes()}
    assert named == {"triton", "tfserving", "dispatch", "sim"}
