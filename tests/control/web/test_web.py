"""The daemon seen from outside: what it answers, to whom, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
pytest.importorskip("uvicorn", reason="needs fastapi and uvicorn")

from tests.builders import configuration
from tests.control.daemon.daemon_bed import Bed
from tests.control.web.site import TOKEN, Site, show_traffic
from tests.waiting import eventually
from tuner.control.daemon import daemon as daemon_module
from tuner.control.daemon.phase import AbsentTarget
from tuner.control.daemon.worker import Worker
from tuner.control.service import web_server
from tuner.control.web.access import allowed_names
from tuner.errors import InvalidInput
from tuner.web.token import read_token


@pytest.fixture
def site(bed: Bed) -> Iterator[Site]:
    """Two targets, of which the first is changed."""
    bed.write(("a", "apply", ""), ("b", "recommend", ""))
    with Site(bed) as site:
        eventually(lambda: all(worker.turns > 5 for worker in site.daemon.workers.values()))
        yield site


def values(site: Site) -> dict[tuple[str, ...], float]:
    """All samples of /metrics by name and labels."""
    families = text_string_to_metric_families(site.ask("/metrics").text)
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_tell_of_every_target(site: Site) -> None:
    """Load, latency against the SLO, what it runs, decisions, rollbacks and the loop's own latency."""
    found = values(site)

    assert found["servetune_target_up", "target=a"] == 1
    assert found[
        "servetune_target_info", "mode=recommend", "objective=latency", "slo=p95 <= 30ms", "target=b"
    ]
    assert found["servetune_slo_latency_seconds", "statistic=p95", "target=a"] == 0.030
    assert found["servetune_latency_seconds", "statistic=p95", "target=b"] == pytest.approx(0.05, abs=0.03)
    assert found["servetune_request_rate", "target=a"] == pytest.approx(200, rel=0.1)
    assert found["servetune_knob", "knob=max_batch_size", "target=b"] == 1
    assert 0 <= found["servetune_slo_attainment_ratio", "target=a"] <= 1
    assert found["servetune_loop_latency_seconds_count", "target=a"] > 5
    applied = ("servetune_decisions_total", "action=apply", "outcome=applied", "target=a")
    assert found[applied] == found["servetune_change_seconds_count", "target=a"] - found.get(
        ("servetune_rollbacks_total", "target=a"), 0
    )
    assert ("servetune_expected_cost", "target=a") in found
    assert ("servetune_observed_cost", "target=a") in found


def test_metrics_forget_targets_that_are_gone(site: Site) -> None:
    """After the file was read again."""
    site.bed.write(("b", "recommend", ""))
    site.bed.path.write_text("http: {listen: '127.0.0.1:0', token_file: token}\n" + site.bed.path.read_text())
    site.daemon.reload()
    eventually(lambda: set(site.daemon.workers) == {"b"})

    assert {label for key in values(site) for label in key if label.startswith("target=")} == {"target=b"}


def test_healthy_and_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready when every target was tried, healthy while the daemon looks after them."""
    assert site.ask("/healthz").json == {"ok": True, "problems": []}
    assert site.ask("/readyz").status == 200

    monkeypatch.setattr(Worker, "phase", "starting")
    starting = site.ask("/readyz")
    monkeypatch.setattr(type(site.daemon), "silence", 500.0)
    hanging = site.ask("/healthz")

    assert (starting.status, starting.json["problems"]) == (503, ["a is starting", "b is starting"])
    assert (hanging.status, hanging.json["problems"]) == (503, ["the daemon has been silent for 500 s"])


def test_not_ready_while_a_target_waits_for_one_that_has_gone(site: Site) -> None:
    """It has its server, and has yet to end."""
    site.daemon._workers["old"] = site.daemon._workers.pop("a")
    try:
        answer = site.ask("/readyz")
    finally:
        site.daemon._workers["a"] = site.daemon._workers.pop("old")

    assert (answer.status, answer.json["problems"]) == (503, ["a is starting"])


def test_a_target_that_waits_for_another_one_is_shown(site: Site) -> None:
    """It is in the list with the reason and since when, and is not up; orders wait for it in the store."""
    config = next(target for target in site.daemon.config.targets if target.name == "a")
    why = "waiting: 'old', which has its server, still hangs"
    site.daemon._absent["a"] = AbsentTarget(config=config, phase=why, since=1000.0)
    try:
        ready, shown, found = site.ask("/readyz"), site.ask("/api/targets").json, values(site)
        ordered = site.order("/api/targets/a/pause")
    finally:
        del site.daemon._absent["a"]

    assert (ready.status, ready.json["problems"]) == (503, [f"a is {why}"])
    assert [(one["name"], one["phase"] == why, one["since"] == 1000.0) for one in shown] == [
        ("a", True, True),
        ("b", False, False),
    ]
    assert (found["servetune_target_up", "target=a"], found["servetune_target_up", "target=b"]) == (0, 1)
    assert ordered.status == 200


def test_it_is_seen_at_the_same_place_when_the_store_was_replaced(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was deleted under the daemon's feet: all targets start again, and the address stays."""
    monkeypatch.setattr(daemon_module, "CHECK_EVERY", 0.05)
    eventually(lambda: all(worker.turns for worker in site.daemon.workers.values()))
    address, events = site.web.address, "/api/targets/a/windows"
    (site.bed.folder / "s.db").unlink()
    eventually(lambda: any("started again" in sentence for sentence in site.bed.said))

    def answers() -> object:
        try:
            return site.ask(events).json
        except OSError:  # in between nothing listens
            return False

    eventually(answers)
    assert site.web.address == address


def test_the_api_tells_what_is_kept_and_why(site: Site) -> None:
    """Targets, windows, decisions with reasons, events."""
    a, b = site.ask("/api/targets").json
    assert (a["name"], a["mode"], a["slo"]) == ("a", "apply", {"statistic": "p95", "latency": 0.03})
    assert site.ask("/api/targets/b").json["running"] == dict(configuration())
    assert [knob["name"] for knob in b["knobs"]] == ["max_batch_size", "max_queue_delay", "instances"]

    windows = site.ask("/api/targets/b/windows?count=3").json
    assert len(windows) == 3
    assert windows[0]["number"] < windows[1]["number"]
    assert windows[0]["latencies"]["p95"] > 0

    decisions = site.ask("/api/targets/a/decisions").json
    assert decisions[0]["action"] == "apply"
    assert "breaks 30ms" in decisions[0]["reason"]
    told = site.ask(f"/api/decisions/{decisions[0]['decision']}").json["explanation"]
    assert set(told) >= {"seen", "decided", "because", "expected", "outcome"}
    assert "it runs" in site.ask("/api/targets/a/events").json[0]["sentence"]


def test_a_dispatcher_shows_its_sessions(site: Site) -> None:
    """What came of the requests of each, its backends, and advice on its pool; others have none of it."""
    show_traffic(site)

    assert site.ask("/api/targets/b/traffic").json is None
    shown = site.ask("/api/targets/a/traffic").json
    assert shown["sessions"] == [
        {
            "name": "mlp",
            "rate": 100.0,
            "in_time": 97.5,
            "late": 0.5,
            "dropped": {"deadline": 2.0},
            "mean_batch": 7.25,
            "waiting": 3,
        }
    ]
    assert [server["up"] for server in shown["servers"]] == [True, False]
    assert shown["advice"]["gain"] == pytest.approx(0.5)
    assert (shown["advice"]["steps"], shown["advice"]["seconds"]) == ("start 1 x r5n.large", 60.0)
    found = values(site)
    assert found["servetune_advised_instances", "target=a", "type=r5n.large"] == 1
    assert found["servetune_advised_pool_gain_ratio", "target=a"] == pytest.approx(0.5)
    assert found["servetune_advised_pool_switch_dollars", "target=a"] == pytest.approx(0.15 / 60)


def test_learned_costs(site: Site) -> None:
    """Of what was tried the measured cost, of its region the inferred one; who only watches has none."""
    learned = site.ask("/api/targets/a/costs").json
    tried = [entry for entry in learned["costs"] if entry["windows"]]

    assert learned["rate"] == pytest.approx(200, rel=0.15)
    assert tried
    assert len(learned["costs"]) >= len(tried)
    assert dict(configuration()) in [entry["configuration"] for entry in tried]


@pytest.mark.parametrize(
    "path",
    [
        "/api/targets/c",
        "/api/targets/c/costs",
        "/api/targets/c/windows",
        "/api/targets/c/decisions",
        "/api/decisions/999999",
        "/no",
    ],
)
def test_what_is_not_there(site: Site, path: str) -> None:
    """Such an address is answered with 404."""
    answer = site.ask(path)

    assert answer.status == 404
    assert answer.json["detail"]


@pytest.mark.parametrize("query", ["count=0", "count=x", "count=99999999999999999999", "holds=perhaps"])
def test_questions_that_make_no_sense(site: Site, query: str) -> None:
    """They are answered with 422."""
    assert site.ask(f"/api/targets/a/decisions?{query}").status == 422


def test_orders_are_followed(site: Site) -> None:
    """Pause and pin hold; they stand in the answer and in the metrics."""
    paused = site.order("/api/targets/a/pause", {"why": "a test"})
    assert (paused.status, paused.json["paused"]) == (200, "a test")
    eventually(lambda: site.ask("/api/targets/a/decisions?holds=1").json[-1]["reason"] == "paused: a test")
    assert values(site)["servetune_target_paused", "target=a"] == 1

    assert site.order("/api/targets/a/resume").json["paused"] == ""
    assert (
        site.order("/api/targets/a/pin", {"set": {"max_batch_size": 16}}).json["pinned"]["max_batch_size"]
        == 16
    )
    eventually(lambda: site.bed.running()["max_batch_size"] == 16)
    assert site.order("/api/targets/a/unpin").json["pinned"] is None


def test_roll_back(site: Site) -> None:
    """What the last change replaced runs again; a target that is not changed cannot be rolled back."""
    site.order("/api/targets/a/pin", {"set": {"max_batch_size": 16, "instances": 2, "max_queue_delay": 0.01}})
    eventually(lambda: site.bed.running() == configuration(16, 0.01, 2))
    eventually(lambda: site.ask("/api/targets/a").json["running"] == dict(configuration(16, 0.01, 2)))
    site.order("/api/targets/a/pause")

    answer = site.order("/api/targets/a/rollback")

    assert answer.status == 200
    eventually(lambda: site.bed.running() != configuration(16, 0.01, 2))
    refused = site.order("/api/targets/b/rollback")
    assert (refused.status, refused.json["detail"]) == (
        409,
        "b is in mode recommend, in which nothing is changed; "
        "write mode: apply for it in the daemon's file, and let the daemon read that again (SIGHUP)",
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": "Bearer \xff\xfe"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, (415, 422)),
        ({"Content_Type": "application/x-www-form-urlencoded"}, (415, 422)),
        ({"Host": "evil.example"}, 421),
        ({"Transfer_Encoding": "chunked"}, 411),
    ],
)
def test_orders_of_strangers_are_refused(
    site: Site, headers: dict[str, Any], status: int | tuple[int, ...]
) -> None:
    """Without the token, from another page, as a form can send them, under another name."""
    answer = site.order("/api/targets/a/pause", **headers)

    assert answer.status in (status if isinstance(status, tuple) else (status,))
    assert site.ask("/api/targets/a").json["paused"] == ""


@pytest.mark.parametrize(
    ("host", "names", "answered"),
    [
        ("127.0.0.1", [], {"localhost", "127.0.0.1", "::1"}),
        ("::1", ["tuner.example"], {"localhost", "127.0.0.1", "::1", "tuner.example"}),
        ("0.0.0.0", [], set()),
        ("0.0.0.0", ["tuner.example"], {"localhost", "127.0.0.1", "::1", "0.0.0.0", "tuner.example"}),
    ],
)
def test_names_that_are_answered(host: str, names: list[str], answered: set[str]) -> None:
    """On a loopback address its own; elsewhere all, unless some are given."""
    assert set(allowed_names(host, names)) == answered


def test_probes_are_answered_under_any_name(site: Site) -> None:
    """Kubernetes asks for the address of the pod."""
    assert site.ask("/healthz", headers={"Host": "10.1.2.3:7411"}).status == 200
    assert site.ask("/metrics", headers={"Host": "10.1.2.3:7411"}).status == 421


def test_the_page_may_give_orders(site: Site) -> None:
    """Its own origin is let through."""
    assert site.order("/api/targets/a/pause", Origin=site.web.address).status == 200


def test_long_bodies_are_refused(site: Site) -> None:
    """Before they are read."""
    assert site.order("/api/targets/a/pause", {"why": "x" * 20_000}).status == 413


def test_orders_that_make_no_sense(site: Site) -> None:
    """Unknown fields, knobs and values; what is no number."""
    assert site.order("/api/targets/a/pause", {"wy": "x"}).status == 422
    assert site.order("/api/targets/a/pin", {"set": {"speed": 1}}).status == 409
    assert site.order("/api/targets/a/pin", {"set": {"max_batch_size": 3}}).status == 409
    assert site.order("/api/targets/a/pin", {"set": {"max_batch_size": "many"}}).status == 422
    assert site.order("/api/targets/c/pause").status == 404


def test_without_a_token_nobody_gives_orders(bed: Bed) -> None:
    """Reading goes on."""
    bed.write(("a", "observe", ""))
    with Site(bed, token=None) as site:
        assert site.order("/api/targets/a/pause").status == 403
        assert site.ask("/api/targets").status == 200
    assert any("orders are refused" in sentence for sentence in bed.said)


def test_the_token_is_renewed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the daemon runs; a file that cannot be used leaves the one from before, and is named once."""
    monkeypatch.setattr("tuner.control.daemon.daemon.CHECK_EVERY", 0.05)
    file, pause = site.bed.folder / "token", "/api/targets/a/pause"

    file.write_text("")
    eventually(lambda: any("is empty" in one and str(file) in one for one in site.bed.said))
    assert site.order(pause).status == 200
    file.write_text(TOKEN[::-1])
    eventually(lambda: any("http.token_file was renewed" in one for one in site.bed.said))
    assert site.order(pause).status == 401
    assert site.order(pause, Authorization=f"Bearer {TOKEN[::-1]}").status == 200
    assert sum("empty" in one for one in site.bed.said) == 1


def test_the_token_is_told_nowhere(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Not in what is said, logged, answered or kept."""
    site.order("/api/targets/a/pause", {"why": "a test"})
    answers = [site.ask(path).text for path in ("/", "/metrics", "/openapi.json", "/api/targets")]

    assert TOKEN not in "".join([*site.bed.said, caplog.text, *answers])
    assert TOKEN.encode() not in (site.bed.folder / "s.db").read_bytes()


def test_the_page_runs_no_script_but_its_own(site: Site) -> None:
    """Its policy names the hashes; other pages cannot frame it; nothing is cached."""
    page = site.ask("/")

    assert page.status == 200
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in page.headers
    assert "innerHTML" not in page.text


def test_the_api_describes_itself(site: Site) -> None:
    """A valid OpenAPI document, in which orders need the token."""
    document = site.ask("/openapi.json").json
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document)

    orders = [path for path, item in document["paths"].items() if "post" in item]
    assert len(orders) == 5
    assert all(document["paths"][path]["post"]["security"] == [{"HTTPBearer": []}] for path in orders)


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("short", 0o600, "at least 16"),
        ("\n", 0o600, "is empty"),
        ("x" * 30, 0o644, "can be read by everybody"),
        (None, 0, "cannot be read"),
    ],
)
def test_poor_tokens_are_refused(tmp_path: Path, text: str | None, mode: int, problem: str) -> None:
    """When the daemon begins, with what to do."""
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)

    with pytest.raises(InvalidInput, match=problem):
        read_token(path, None, "http.token_file")


def test_a_pipe_is_no_token(tmp_path: Path) -> None:
    """Nobody may ever write to it, and the daemon does not wait."""
    os.mkfifo(tmp_path / "token", 0o600)

    with pytest.raises(InvalidInput, match="cannot be read"):
        read_token(tmp_path / "token", None, "http.token_file")


def test_the_token_comes_from_the_file_or_the_environment(tmp_path: Path) -> None:
    """The file comes first; an empty one is none."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)

    assert read_token(path, "y" * 20, "http.token_file") == TOKEN
    assert read_token(None, "y" * 20, "http.token_file") == "y" * 20
    assert read_token(None, "", "http.token_file") is None


def test_an_address_in_use_is_told(bed: Bed) -> None:
    """One clear error, before anything is attached."""
    bed.write(("a", "observe", ""))
    with Site(bed) as site:
        other = bed.folder / "other"
        other.mkdir()
        bed.folder, bed.path = other, other / "servetune.yaml"
        bed.write(("a", "observe", ""))
        port = site.web.address.rpartition(":")[2]
        bed.path.write_text(f"http: {{listen: '127.0.0.1:{port}'}}\n" + bed.path.read_text())
        daemon = bed.daemon()
        with pytest.raises(InvalidInput, match=r"http\.listen: 127\.0\.0\.1:\d+ cannot be used"):
            daemon.run(web_server(daemon, bed.said.append))


def test_nothing_of_it_is_loaded_without_being_asked_for() -> None:
    """Neither the command line nor a daemon without `http` imports a web server."""
    code = (
        "import sys, tuner.cli.app, tuner.control.service, tuner.control.daemon.worker; "
        "print(*sorted({'fastapi', 'starlette', 'uvicorn', 'tuner.control.web'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "\n"
