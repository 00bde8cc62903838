"""``tuner config``: the example, and the check of a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.builders import SPACE
from tests.command_line import Run
from tuner.agents.rrl import RRL
from tuner.knobs import Knob, KnobSpace


@pytest.fixture
def run(run: Run) -> Run:
    """Run `tuner config`."""
    return partial(run, "config")


def test_the_example_passes_the_check(run: Run) -> None:
    """As printed."""
    code, text, _ = run("example")
    Path("servetune.yaml").write_text(text)

    checked, out, err = run("check", "servetune.yaml")

    assert (code, checked, err) == (0, 0, "")
    assert "resnet50" in out
    assert "max_batch_size 4..32" in out
    assert "knobs (times in s)" in out
    assert "servetune.yaml is right" in out


def test_servers_can_be_asked(run: Run) -> None:
    """Whether they are there and have such knobs."""
    Path("one.yaml").write_text("targets: [{name: a, url: 'sim://mlp', slo: p95=30ms}]\n")
    Path("two.yaml").write_text(
        "targets: [{name: a, url: 'sim://mlp', slo: p95=30ms, knobs: {speed: [1]}}, "
        "{name: b, url: 'sim://nobody', slo: p95=30ms}]\n"
    )

    good, out, _ = run("check", "one.yaml", "--connect")
    bad, _, err = run("check", "two.yaml", "--connect")

    assert good == 0
    assert "a: simulated-triton 1, 72 configurations, can be changed" in out
    assert bad == 2
    assert "2 of 2 targets" in err
    assert "a: knob speed: unknown" in err
    assert "b: model: the server does not serve 'nobody'" in err


def test_what_the_daemon_would_refuse_is_found(run: Run) -> None:
    """A goal that cannot be measured, and time of its own with Prometheus; each by the name of its field."""
    Path("gpu.yaml").write_text(
        "targets:\n"
        "  - {name: a, url: 'sim://mlp?rate=300', slo: p95=30ms, mode: apply, window: 2s, objective: gpu}\n"
        "  - {name: b, url: 'sim://mlp', slo: p95=30ms, sli: {prometheus: 'http://127.0.0.1:1', query: up}}\n"
        "  - {name: c, url: 'sim://mlp', slo: p95=30ms, knobs: {max_batch_size: 4}}\n"
        "  - {name: d, url: 'sim://mlp', slo: p95=30ms, probe_rate: 20}\n"
        "  - {name: e, url: 'sim://mlp', slo: p95=30ms, mode: observe, knobs: {max_batch_size: 4}}\n"
    )

    code, out, err = run("check", "gpu.yaml", "--connect")

    assert code == 2
    assert "gpu.yaml is right" not in out
    none = "no GPU can be seen from this machine, and the server reports none"
    assert err.splitlines()[1:] == [
        f"  a: objective: {none}; use latency or cpu",
        "  b: sli.prometheus: a simulated target has its own time; leave it out",
    ]
    assert "c: simulated-triton 1, 12 configurations" in out
    assert "d: simulated-triton" in out
    assert "e: simulated-triton" in out


def test_an_agent_for_other_knobs_is_found(run: Run) -> None:
    """Than the server has; the knob of our own requests, which are not sent, is not missed."""
    clients = Knob(name="max_in_flight", grid=(4, 16), default=4)
    RRL(KnobSpace([*SPACE.knobs, clients]), synchronous=True).save(Path("three"))
    RRL(KnobSpace([*SPACE.knobs[:2], clients]), synchronous=True).save(Path("two"))
    target = "{{name: {0}, url: 'sim://mlp', slo: p95=30ms, probe_rate: 5, policy: {0}}}"
    Path("both.yaml").write_text(f"targets: [{target.format('two')}, {target.format('three')}]\n")

    code, out, err = run("check", "both.yaml", "--connect")

    assert code == 2
    assert "three: simulated-triton 1, 30 configurations" in out
    assert err.splitlines()[1:] == [
        "  two: knob instances: not among what was learned: max_batch_size, max_queue_delay; "
        "use the knobs and grids of the policy in two, or train again"
    ]


def test_mistakes_are_told(run: Run) -> None:
    """Exit code 2, line and field."""
    Path("bad.yaml").write_text("targets:\n  - name: a\n    url: sim://mlp\n    slo: fast\n")

    code, out, err = run("check", "bad.yaml")

    assert (code, out) == (2, "")
    assert err == "error: bad.yaml line 4: targets[0].slo: 'fast' has no '='; write p95=30ms\n"


def test_a_token_that_the_daemon_would_refuse_is_found(run: Run) -> None:
    """If it is there: the file may be for another machine."""
    Path("web.yaml").write_text(
        "http: {token_file: token}\ntargets: [{name: a, url: 'sim://mlp', slo: p95=30ms}]\n"
    )
    assert run("check", "web.yaml")[0] == 0
    Path("token").touch(0o600)
    Path("token").write_text("short")

    code, out, err = run("check", "web.yaml")

    assert (code, out) == (2, "")
    assert err.startswith("error: http.token_file token: needs at least 16 ASCII characters; make one with")
