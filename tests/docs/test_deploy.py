"""What is in ``deploy/`` is accepted by the tools that it is meant for, as far as they are there."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ruamel.yaml import YAML

from tuner.cli.exit_code import ExitCode
from tuner.control import GuardLimits
from tuner.control.daemon.config import DaemonConfig
from tuner.dispatch.front.fronts import LAST_WRITES
from tuner.dispatch.metrics import CLIENTS
from tuner.dispatch.process import DRAIN
from tuner.dispatch.request import Status
from tuner.files.yaml_file import load_yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
UNIT = DEPLOY / "systemd" / "servetune.service"
DISPATCH = UNIT.with_name("servetune-dispatch.service")
MANIFESTS = DEPLOY / "kubernetes"


def run(*command: str) -> str:
    """What a tool says; skipped without it."""
    tool = shutil.which(
        command[0], path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if tool is None:
        pytest.skip(f"no {command[0]} on PATH")
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def settings(unit: Path) -> list[tuple[str, str]]:
    """Name and value of each setting of a unit, in order: a name may come twice."""
    lines = [line for line in unit.read_text().splitlines() if not line.startswith("#")]
    return [(name, value) for name, sign, value in (line.partition("=") for line in lines) if sign]


@pytest.mark.parametrize(("name", "most"), [(UNIT.name, 2.5), (DISPATCH.name, 2.0)])
def test_a_unit(name: str, most: float, tmp_path: Path) -> None:
    """systemd finds no mistake in it, and it has few rights."""
    unit = tmp_path / name
    unit.write_text((UNIT.parent / name).read_text().replace("/opt/servetune/bin/tuner", "/bin/true"))

    assert run("systemd-analyze", "verify", "--man=no", str(unit)) == ""
    exposure = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    found = re.search(r"exposure level for \S+: ([\d.]+)", exposure)
    assert found is not None
    assert float(found[1]) < most


def test_the_dispatcher_has_the_time_to_answer_what_it_has() -> None:
    """And not much more: whoever waits for it to end waits for this."""
    assert DRAIN + LAST_WRITES < float(dict(settings(DISPATCH))["TimeoutStopSec"]) <= 30


def test_the_unit_lets_the_daemon_ask_for_the_addresses_of_its_machine() -> None:
    """They come through a netlink socket."""
    assert "AF_NETLINK" in dict(settings(UNIT))["RestrictAddressFamilies"].split()


@pytest.mark.parametrize("unit", [UNIT, DISPATCH], ids=lambda unit: unit.name)
def test_a_mistake_in_a_file_restarts_nothing_for_ever(unit: Path) -> None:
    """The exit code that prevents a restart is that of the main process, so that one finds the mistake."""
    found = dict(settings(unit))

    assert found["RestartPreventExitStatus"] == str(ExitCode.ERROR.value)
    assert "ExecStartPre" not in found


def test_the_unit_lets_a_file_keep_its_group() -> None:
    """A later setting of the name adds to what the earlier ones have left."""
    calls = [value for name, value in settings(UNIT) if name == "SystemCallFilter"]

    assert calls[-2:] == ["~@privileged", "@chown"]


def test_more_rights_by_a_drop_in(tmp_path: Path) -> None:
    """systemd takes it with the unit; the folders in it are the only ones that are added."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/servetune/bin/tuner", "/bin/true"))
    beside = tmp_path / f"{UNIT.name}.d"
    beside.mkdir()
    more = (UNIT.parent / "folders.conf").read_text()
    assert [name for name, _ in settings(UNIT.parent / "folders.conf")] == ["ReadWritePaths"]

    (beside / "folders.conf").write_text(more)
    assert run("systemd-analyze", "verify", "--man=no", str(unit)) == ""
    (beside / "folders.conf").write_text(more.replace("ReadWritePaths", "ReadWritePath"))
    assert "ReadWritePath" in run("systemd-analyze", "verify", "--man=no", str(unit))


@pytest.mark.parametrize(
    ("user", "unit", "verb", "allowed"),
    [
        ("servetune", "tensorflow-model-server.service", "restart", "yes"),
        ("servetune", "tensorflow-model-server.service", "stop", "undefined"),
        ("servetune", "ssh.service", "restart", "undefined"),
        ("nobody", "tensorflow-model-server.service", "restart", "undefined"),
    ],
)
def test_what_the_daemon_may_restart(user: str, unit: str, verb: str, allowed: str) -> None:
    """One service, as polkit judges."""
    rules = (UNIT.parent / "50-servetune-restart.rules").read_text()
    details = json.dumps({"unit": unit, "verb": verb})
    judge = (
        "const polkit = {Result: {YES: 'yes'}, addRule: (rule) => { polkit.rule = rule; }};\n"
        f"{rules}\nconst details = {details};\n"
        "const action = {id: 'org.freedesktop.systemd1.manage-units', lookup: (name) => details[name]};\n"
        f"console.log(String(polkit.rule(action, {{user: '{user}'}})));"
    )

    assert run("node", "--eval", judge).strip() == allowed


def test_the_container_file() -> None:
    """hadolint finds nothing; everything that is copied is there."""
    text = (DEPLOY / "Containerfile").read_text()
    copied = [
        name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()
    ]
    assert copied
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []

    run("hadolint", str(DEPLOY / "Containerfile"))


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_daemon_and_no_proxy(status: int, code: int) -> None:
    """Containers often get ``http_proxy`` from those who start them."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with socket.socket() as proxy, HTTPServer(("127.0.0.1", 0), Answer) as server:
        proxy.bind(("127.0.0.1", 0))  # nobody listens there
        dead = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        _, *arguments = json.loads(command.replace("7411", str(server.server_port)))
        done = subprocess.run(
            [sys.executable, *arguments], env={**clean, "http_proxy": dead}, capture_output=True, check=False
        )
        server.shutdown()
        thread.join()

    assert done.returncode == code, done.stderr


def manifests() -> list[dict[str, Any]]:
    return [m for m in YAML(typ="safe").load_all((MANIFESTS / "servetune.yaml").read_text()) if m]


def test_the_manifests_fit_together() -> None:
    """kustomize builds them, the file in them is right, and a pod that does not start can be replaced."""
    assert load_yaml(MANIFESTS / "config.yaml", DaemonConfig).http.listen == ("0.0.0.0", 7411)
    (stateful,) = [manifest for manifest in manifests() if manifest["kind"] == "StatefulSet"]
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"

    built = run("kubectl", "kustomize", str(MANIFESTS))
    assert "kind: StatefulSet" in built
    assert "kind: ConfigMap" in built


def test_the_image_that_is_built_is_the_one_that_runs() -> None:
    """It has the version of the package."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (stateful,) = [manifest for manifest in manifests() if manifest["kind"] == "StatefulSet"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    stop = stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert container["image"] == f"servetune:{version}"
    for file in (DEPLOY / "Containerfile", MANIFESTS / "kustomization.yaml"):
        assert f"-t {container['image']} -f deploy/Containerfile ." in file.read_text()
    assert f"--stop-timeout {stop} " in (DEPLOY / "Containerfile").read_text()


def test_the_manifests_are_what_kubernetes_takes() -> None:
    """By its own schemas."""
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for manifest in manifests():
        validator.validate(manifest, validator.latest_version(), strict=True)


def alerts() -> dict[str, Any]:
    """The rules by the names of their alerts."""
    groups = YAML(typ="safe").load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_the_alerts() -> None:
    """promtool takes them."""
    run("promtool", "check", "rules", str(DEPLOY / "prometheus" / "rules.yaml"))


def test_a_target_that_is_away_raises_an_alert() -> None:
    """Also one that was never attached, and has no other series."""
    assert "servetune_target_up == 0" in [rule["expr"] for rule in alerts().values()]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("ServetuneGone", "servetune_build_info"),
        ("ServetuneDispatchGone", "servetune_dispatch_build_info"),
    ],
)
def test_a_process_that_has_gone_raises_an_alert(name: str, metric: str) -> None:
    """Its series have gone with it, so a job is missed that had one within a day."""
    rule = alerts()[name]
    there, was_there = f"count by (job) ({metric})", f"count by (job) (last_over_time({metric}[1d]))"

    assert rule["expr"].split() == f"{was_there} unless {there}".split()
    assert rule["for"] == "10m"
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) == {"job"}


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("ServetuneOneGone", "servetune_build_info"),
        ("ServetuneDispatchOneGone", "servetune_dispatch_build_info"),
    ],
)
def test_one_of_several_processes_of_a_job_that_has_gone_raises_an_alert(name: str, metric: str) -> None:
    """While another goes on: else it is the job that has gone."""
    was_ours, others = f"on (job, instance) last_over_time({metric}[1d])", f"on (job) {metric}"

    assert alerts()[name]["expr"] == f"up == 0 and {was_ours} and {others}"


def test_the_dashboard_tells_two_daemons_apart() -> None:
    """Their targets may have the same names, and so may what they are scraped as."""
    dashboard = json.loads((DEPLOY / "grafana" / "servetune.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["expr"] for one in dashboard["annotations"]["list"]]

    assert "instance" in [one["name"] for one in dashboard["templating"]["list"]]
    chosen = 'job=~"$job",instance=~"$instance"'
    assert [one for one in asked if not all(chosen in labels for labels in re.findall(r"{(.*?)}", one))] == []


def test_the_alert_on_failed_changes_goes_by_those_in_a_row() -> None:
    """As many as make the circuit breaker pause, unless the file says otherwise."""
    expression = alerts()["ServetuneChangesFail"]["expr"]

    assert expression == f"servetune_failed_changes_in_a_row >= {GuardLimits().breaker}"


def test_the_alert_on_changes_by_others_spares_who_only_watches() -> None:
    """Two daemons have to tune a server for either to disturb the other."""
    expression = alerts()["ServetuneForeignChanges"]["expr"]

    assert expression.split(" and ")[0] == "increase(servetune_foreign_changes_total[1h]) >= 2"
    assert expression.endswith('servetune_target_info{mode="apply"}')


def test_the_alert_on_refused_requests_names_statuses_that_there_are() -> None:
    """Those that are not the clients' own mistakes."""
    (named,) = re.findall(r'status=~"([^"]+)"', alerts()["ServetuneDispatchRefuses"]["expr"])

    assert {*named.split("|")} == {status.value for status in Status} - {status.value for status in CLIENTS}


def test_dashboard_and_alerts_name_metrics_that_there_are() -> None:
    """And the dashboard is whole: every panel asks for something, and none lies on another."""
    pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
    from tuner.control.web import Exporter
    from tuner.dispatch.metrics import Metrics

    there = set()
    for metric in [*Exporter().registry.collect(), *Metrics().registry.collect()]:
        histogram = metric.type == "histogram"
        endings = (
            ("_bucket", "_sum", "_count") if histogram else ("_total",) if metric.type == "counter" else ("",)
        )
        there |= {metric.name + ending for ending in endings}
    dashboard = json.loads((DEPLOY / "grafana" / "servetune.json").read_text())
    text = json.dumps(dashboard) + (DEPLOY / "prometheus" / "rules.yaml").read_text()

    named = set(re.findall(r"servetune_[a-z_]+", text))
    assert named
    assert named - there == set()
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert all(target["expr"] for target in panel["targets"])
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells
        cells |= mine
    assert {x for x, _ in cells} <= set(range(24))


def test_yaml_is_tidy() -> None:
    """yamllint finds nothing."""
    pytest.importorskip("yamllint", reason="needs yamllint")
    from yamllint import linter
    from yamllint.config import YamlLintConfig

    rules = YamlLintConfig(
        "{extends: default, rules: {line-length: {max: 120}, document-start: disable, "
        "comments: {min-spaces-from-content: 1}, truthy: {check-keys: false}}}"
    )
    for path in [WORKFLOW, *DEPLOY.rglob("*.yaml")]:
        assert [str(problem) for problem in linter.run(path.read_text(), rules)] == [], path


def test_the_pythons_of_the_workflow_are_those_that_the_package_names() -> None:
    """A Python in `classifiers` is one that the tests run on, the oldest with `.ci/run`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    jobs = YAML(typ="safe").load(WORKFLOW)["jobs"]
    oldest = [
        step["with"]["python-version"]
        for step in jobs["all"]["steps"]
        if "python-version" in step.get("with", {})
    ]
    newer = jobs["newer-python"]["strategy"]["matrix"]["python"]

    assert project["requires-python"] == f">={oldest[0]}"
    assert [f"Programming Language :: Python :: {version}" for version in itertools.chain(oldest, newer)] == [
        line for line in project["classifiers"] if line.startswith("Programming Language")
    ]
