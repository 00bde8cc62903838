"""The dispatcher's file: what it may say, and how mistakes in it are reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.command_line import Run, run
from tuner.cluster.scenario import Scenario, Session
from tuner.dispatch.config import DispatchConfig
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.plugin import check_installed
from tuner.scheduling.batching.symphony import SymphonyOptions

__all__ = ["run"]

FILE = """\
listen: {grpc: "127.0.0.1:9100", http: "[::1]:9101"}
sessions:
  - {name: mlp, slo_ms: 50, backends: ["triton://127.0.0.1:8001/mlp", "triton://127.0.0.1:8011/mlp"]}
  - {name: cnn, slo_ms: 80, backends: ["triton://127.0.0.1:8011/cnn", "triton://127.0.0.1:8001/cnn"]}
"""


def load(tmp_path: Path, text: str) -> DispatchConfig:
    path = tmp_path / "dispatch.yaml"
    path.write_text(text)
    return load_yaml(path, DispatchConfig)


def test_a_file(tmp_path: Path) -> None:
    """What is not said has its default."""
    config = load(tmp_path, FILE)

    assert config.listen.http == ("::1", 9101)
    assert config.rules().policy == "symphony"
    assert config.rules().chosen == SymphonyOptions(deferral=0.1)
    assert set(config.sessions[0].servers) == {"127.0.0.1:8001", "127.0.0.1:8011"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('listen: {grpc: "127.0.0.1:9100", ', "mode: grants\nlisten: {", "line 1: mode: frontends ask"),
        ("sessions:", "modus: proxy\nsessions:", "modus: there is no such field; did you mean 'mode'?"),
        ("sessions:", "policy: fifo\nsessions:", "policy: there is no 'fifo'; use one of symphony"),
        ("sessions:", "policy: nexus\nsessions:", "nexus knows its requests beforehand"),
        ("sessions:", "options: {defer: 1}\nsessions:", "options.defer: symphony has no such option"),
        (
            "sessions:",
            "policy: drs\noptions: {threshold: [5, 9]}\nsessions:",
            "options.threshold: no list here: the dispatcher has one value for all sessions",
        ),
        (
            "sessions:",
            "policy: timeout\noptions: {delay: [0.01], preferred: [4]}\nsessions:",
            "options.delay: no list here: the dispatcher has one value for all sessions",
        ),
        ("name: cnn", "name: mlp", r"sessions\[1\].name: 'mlp' is the name of two"),
        ("slo_ms: 80", "slo_ms: 0", r"sessions\[1\].slo_ms: must be greater than 0"),
        ("8011/cnn", "8012/cnn", r"shares 127.0.0.1:8001 with mlp, but not all its servers"),
        ("8011/mlp", "8001/mlp", "127.0.0.1:8001 is given twice"),
        ("triton://127.0.0.1:8001/mlp", "sim://mlp", "batches cannot be sent to sim://"),
        ("127.0.0.1:9100", "9100", "must be such as 127.0.0.1:9100"),
        ("sessions:", "tracing: {endpoint: collector:4317}\nsessions:", "tracing.endpoint: "),
        ("sessions:", "tracing: {endpoint: http://a:1, ratio: 2}\nsessions:", "tracing.ratio: "),
        ('grpc: "127.0.0.1:9100", http: "[::1]:9101"', "", "nothing listens for clients"),
        ('http: "[::1]:9101"', "grpc_server: rust", "listen.grpc_server: must be 'grpcio' or 'native'"),
        (
            'http: "[::1]:9101"',
            "grpc_server: native, certificate: dispatch.yaml, key: dispatch.yaml",
            "native has no TLS",
        ),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Each is reported with its line and its field."""
    with pytest.raises(InvalidInput, match=said):
        load(tmp_path, FILE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            "tfserving://a:1/m?label=stable",
            "tfserving://a:1/m?label=canary",
            "another version, label or signature of m",
        ),
        ("tfserving://a:1/m?signature=rank", "tfserving://a:1/m", "another version, label or signature of m"),
        ("tfserving://a:1/m?tls=grpc", "tfserving://a:1/n", "by another scheme, TLS or token"),
        ("tfserving://a:1/m", "triton://a:1/m", "by another scheme, TLS or token"),
        ("tfserving://a:1/m?label=stable", "tfserving://a:1/n?label=canary&signature=rank", ""),
        ("triton://a:1/m?tls=grpc", "triton://a:1/m?tls=all", ""),
        ("triton://a:1/m?http=2", "triton://a:1/n", "another HTTP port"),
        ("triton://a:1/m?http=2", "triton://a:1/n?http=2", ""),
        ("triton://a:1/m?version=1", "triton://a:1/m?version=2", "another version, label or signature of m"),
        ("triton://a:1/m?version=1", "triton://a:1/m", "another version, label or signature of m"),
        ("triton://a:1/m?version=1", "triton://a:1/n?version=2", ""),
        ("triton://a:1/m?version=1", "triton://a:1/m?version=1", ""),
    ],
)
def test_sessions_on_one_server(tmp_path: Path, one: str, other: str, said: str) -> None:
    """There is one connection to it, and each model on it has one version, label and signature."""
    text = f"""\
listen: {{grpc: "127.0.0.1:9100"}}
sessions:
  - {{name: first, slo_ms: 50, backends: ["{one}"]}}
  - {{name: second, slo_ms: 50, backends: ["{other}"]}}
"""
    if said:
        with pytest.raises(InvalidInput, match=rf"sessions\[1\].backends: .* a:1 .*{said}"):
            load(tmp_path, text)
    else:
        load(tmp_path, text)


def test_clients_with_grants_send_nothing_over_http(tmp_path: Path) -> None:
    """The option is about the dispatcher's batches, and it has none."""
    text = FILE.replace("/mlp", "/mlp?http=8000", 1) + "mode: grants\n"

    with pytest.raises(InvalidInput, match=r"sessions\[0\].backends: http= is for batches"):
        load(tmp_path, text)


def test_presets_are_policies_with_options(tmp_path: Path) -> None:
    """In the dispatcher's file and in a scenario; options that are given, too, are kept."""
    config = load(tmp_path, FILE + "policy: symphony_paper\noptions: {cap: 8}\n")
    session = Session(name="a", alpha_ms=1, beta_ms=5, slo_ms=25, rate=100)
    scenario = Scenario(policy="symphony_paper", accelerators=1, sessions=(session,))

    assert config.rules().chosen == SymphonyOptions(schedulable="beta_lambda", drop="lazy", cap=8)
    assert (scenario.policy, scenario.options["schedulable"]) == ("symphony", "beta_lambda")


def test_the_command_checks_a_file(run: Run, tmp_path: Path) -> None:
    """It says what it would do, or what is wrong, with exit code 2."""
    path = tmp_path / "dispatch.yaml"
    path.write_text(FILE)
    assert "dispatches mlp, cnn by symphony" in run("dispatch", str(path), "--check").out
    path.write_text(FILE.replace("slo_ms: 50", "slo_ms: soon"))
    ended = run("dispatch", str(path))
    assert ended.code == 2
    assert "line 3: sessions[0].slo_ms" in ended.err


def test_the_check_reads_what_is_listened_with(run: Run, tmp_path: Path) -> None:
    """A token that the start refuses is refused here, too, in the same words; it passed."""
    path, token = tmp_path / "dispatch.yaml", tmp_path / "token"
    path.write_text(FILE.replace("listen: {", "listen: {token_file: token, "))
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    ended = run("dispatch", str(path), "--check")
    assert (ended.code, "listen.token_file" in ended.err) == (2, True)
    assert "can be read by everybody" in ended.err

    token.chmod(0o600)
    assert run("dispatch", str(path), "--check").code == 0


@pytest.mark.parametrize("option", [(), ("--check",)])
def test_the_command_says_what_is_not_installed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    """Before anything is asked, and how to install it."""
    monkeypatch.setitem(sys.modules, "pygrpc_native", None)
    path = tmp_path / "dispatch.yaml"
    path.write_text(FILE.replace("listen: {", "listen: {grpc_server: native, "))

    ended = run("dispatch", str(path), *option)

    assert ended.code == 2
    assert "listen.grpc_server: needs pygrpc_native, which is not installed" in ended.err
    assert "[native]" in ended.err


def test_an_extra_in_a_shared_package_is_looked_for_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`opentelemetry` may be there without its extra, or not at all."""
    check_installed("json.decoder", "tracing")
    for away in ("opentelemetry", "opentelemetry.sdk"):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "opentelemetry.sdk", raising=False)
            patch.setitem(sys.modules, away, None)
            with pytest.raises(InvalidInput, match="tracing: needs opentelemetry, which is not installed"):
                check_installed("opentelemetry.sdk", "tracing")
