"""Reports: recorded windows become data, data becomes a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tuner.adapters.backend import ApplyReport, Description
from tuner.agents.load_levels import LoadLevels
from tuner.control import Apply, Hold, Rollback, WindowRecord
from tuner.control.decide.decision import Decision
from tuner.errors import StorageError
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import Measurement
from tuner.report import Report
from tuner.report.html import render
from tuner.report.recorder import Recorder, write


def recorded() -> Report:
    """A recorder after four windows: apply, broken and rolled back, hold, disturbed."""
    description = Description(
        target="fake://x/m", server="triton", version="2.51.0", model="mlp", writable=True, quantiles=True
    )
    recorder = Recorder(
        title="A <test>", command="tuner run", description=description, space=SPACE, objective=OBJECTIVE
    )

    def applied(to: Configuration) -> ApplyReport:
        return ApplyReport(configuration=to, changed=True, cost=ApplyCost.RELOAD, seconds=0.1, settle=1.5)

    two = configuration(2)
    turns: list[tuple[Measurement, Decision, ApplyReport | None]] = [
        (measurement(0.020, end=5.0), Apply(configuration=two, reason="exploring <b>"), applied(two)),
        (
            measurement(0.900, end=12.0, running=two),
            Rollback(configuration=configuration(), reason="broke the SLO"),
            applied(configuration()),
        ),
        (measurement(0.021, end=19.0), Hold(reason="nothing better"), None),
        (measurement(float("nan"), end=24.0, disturbed=("foreign CPU",)), Hold(reason="not used"), None),
    ]
    for number, (m, decision, report) in enumerate(turns, 1):
        recorder.add(
            WindowRecord(number=number, measurement=m, decision=decision, cost=0.5, level=24, report=report)
        )
    recorder.level(200.0, [measurement(0.9)], [measurement(0.02, running=two)])
    agent = ScriptedAgent()
    agent.learned = {0: 0.7, 5: 1.4}
    recorder.learned(agent, LoadLevels(), {24: {0: 3, 5: 1}})
    return recorder.report(failed=0, sent=4000, reconfigurations=2)


def test_report_has_what_readers_and_machines_look_for(tmp_path: Path) -> None:
    """report.json holds server, SLO, before, after, windows, failures and reconfigurations."""
    data, _ = write(recorded(), tmp_path)

    stored = json.loads(data.read_text())
    assert stored["server"] == {"name": "triton", "version": "2.51.0"}
    assert stored["slo_ms"] == 30
    assert stored["before"]["p95_ms"] == 900
    assert stored["after"]["p95_ms"] == 20
    assert [w["decision"] for w in stored["windows"]] == ["apply", "rollback", "hold", "hold"]
    assert stored["windows"][0]["next_configuration"]["max_batch_size"] == 2
    assert stored["windows"][3]["p95_ms"] is None
    assert (stored["failed_requests"], stored["reconfigurations"]) == (0, 2)


def test_report_survives_a_round_trip(tmp_path: Path) -> None:
    """What was written is what is read."""
    report = recorded()
    report.save(tmp_path / "report.json")

    assert Report.load(tmp_path / "report.json") == report


def test_a_report_from_before_something_was_measured_is_read(tmp_path: Path) -> None:
    """What it does not hold is not known."""
    path = tmp_path / "report.json"
    recorded().save(path)
    values = json.loads(path.read_text())
    for part in (*values["windows"], values["before"], values["after"]):
        del part["queue_ms"]
    path.write_text(json.dumps(values))

    report = Report.load(path)

    assert report.windows[0].figure("queue_ms") is None
    assert report.windows[0].figure("p95_ms") == 20
    assert "queue_ms" in render(report)


def test_page_shows_every_plot_and_escapes_text() -> None:
    """Three plots, every reason, and nothing from outside runs as HTML."""
    page = render(recorded())

    assert page.count("<svg") == 3
    assert "exploring &lt;b&gt;" in page
    assert "A &lt;test&gt;" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_page_of_an_empty_run_is_drawn() -> None:
    """A run that ended before its first window still gives a page."""
    recorder = Recorder(
        title="empty",
        command="tuner run",
        description=Description(
            target="t", server="s", version="1", model="m", writable=True, quantiles=False
        ),
        space=SPACE,
        objective=OBJECTIVE,
    )

    assert "empty" in render(recorder.report(failed=0, sent=0, reconfigurations=0))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}'])
def test_damaged_reports_are_named(tmp_path: Path, text: str) -> None:
    """One clear error with the file's name."""
    (tmp_path / "report.json").write_text(text)

    with pytest.raises(StorageError, match=r"report\.json"):
        Report.load(tmp_path / "report.json")
