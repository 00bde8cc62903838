"""Reports: recorded windows become data, data becomes a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.builders import OBJECTIVE, SPACE, ScriptedAgent, configuration, measurement
from tuner.adapters.backend import ApplyReport, Description
from tuner.agents.load_levels import LoadLevels
from tuner.control import Apply, Hold, Rollback, WindowRecord
from tuner.control.decide.decision import Decision
from tuner.errors import StorageError
from tuner.knobs import ApplyCost, Configuration, Knob, KnobSpace, Role
from tuner.measurement import Measurement
from tuner.objective import Objective, Slo
from tuner.report import Report
from tuner.report.document import LearnedCost
from tuner.report.folder import redraw_report, write_report
from tuner.report.html import render
from tuner.report.plots import latency_figure, learned_figure, to_svg
from tuner.report.recorder import Recorder


def recorded(objective: Objective = OBJECTIVE) -> Report:
    """A recorder after four windows: apply, broken and rolled back, hold, disturbed."""
    description = Description(
        target="fake://x/m", server="triton", version="2.51.0", model="mlp", writable=True, quantiles=True
    )
    recorder = Recorder(
        title="A <test>", command="tuner run", description=description, space=SPACE, objective=objective
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
    data, _ = write_report(recorded(), tmp_path)

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
    """What it does not hold is not known, and what is no part of reports any more is passed over."""
    path = tmp_path / "report.json"
    recorded().save(path)
    values = json.loads(path.read_text())
    for part in (*values["windows"], values["before"], values["after"]):
        del part["queue_ms"]
    assert "windows_to_slo" not in values
    path.write_text(json.dumps({**values, "windows_to_slo": {}}))

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


def test_the_map_prints_what_was_measured() -> None:
    """Not what the agent made of it; the others are inferred, and what ran last is outlined."""
    report = recorded()
    learned = report.learned[0]
    learned.measured[0], learned.costs[0] = 39.96, 1.4
    figure = learned_figure(report)
    assert figure is not None
    text = to_svg(figure)

    assert ">40<" in text
    assert ">1.40<" in text  # what was inferred for configuration 5
    assert ">189 to 237 requests/s" in text  # the loads of level 24, as on the live page
    assert learned.chosen == dict(configuration())
    assert ">max_queue_delay<" in text
    assert ">2ms<" in text


def test_a_large_space_is_one_picture() -> None:
    """The further knobs are summed up by the least cost, and only measured cells have a number."""
    grids = {"a": range(11), "b": range(11), "c": range(11)}
    knobs = [Knob(name=n, grid=tuple(map(float, g)), default=0.0, role=Role.OTHER) for n, g in grids.items()]
    space = KnobSpace(knobs)
    report = recorded()
    measured: list[float | None] = [None] * space.size
    measured[5] = 39.96
    learned = LearnedCost(rate=99.0, costs=[0.5] * space.size, visits=[0] * space.size, measured=measured)
    figure = learned_figure(report.model_copy(update={"knobs": space.to_json(), "learned": [learned]}))

    assert figure is not None
    assert len([axis for axis in figure.axes if axis.images]) == 1
    assert [text.get_text() for text in figure.axes[0].texts] == ["40"]


def test_what_is_shown_is_the_statistic_that_the_slo_is_on() -> None:
    """In the plot, the tile and the tables: of some servers only the mean is known."""
    report = recorded(Objective(slo=Slo(statistic="mean", latency=0.015), cores=2.0))
    page, top = render(report), latency_figure(report).axes[0]

    points = {d.get_label(): np.asarray(d.get_offsets())[:, 1].tolist() for d in top.collections[1:]}
    assert points["SLO kept"] == [10.0, 10.5]
    assert points["SLO broken"] == [450.0]
    assert top.lines[0].get_label() == "mean"
    assert '450.0 → <span class="good">10.0 ms</span></b><span>mean at' in page
    assert page.count(">mean, ms<") == 2
    assert '<td class="n bad">450.0</td>' in page
    assert ">mean, ms<" not in render(recorded())


def test_a_latency_that_was_cut_off_says_so() -> None:
    """In the table and the plot, in ms like its column."""
    report = recorded()
    report.windows[1].cut_off_ms = report.windows[1].p95_ms  # type: ignore[attr-defined]

    assert "over 900" in render(report)
    assert "cut off" in to_svg(latency_figure(report))


def test_a_run_compares_what_ran_first_with_what_it_left() -> None:
    """Under the load of its end; where nothing better was found, a note says that it was left.

    The last window may have tried something that was not kept.
    """
    description = Description(target="t", server="s", version="1", model="m", writable=True, quantiles=False)
    two = configuration(2)
    for left, last, levels in ((two, two, 1), (two, configuration(4), 1), (configuration(), two, 0)):
        recorder = Recorder(
            title="run", command="tuner run", description=description, space=SPACE, objective=OBJECTIVE
        )
        for number, running in enumerate((configuration(), two, last)):
            m = measurement(0.9 if running == configuration() else 0.02, end=5.0 * number, running=running)
            recorder.add(WindowRecord(number=number, measurement=m, decision=Hold(reason="so"), level=24))
        recorder.compare_ends(left)
        report = recorder.report(failed=0, sent=1, reconfigurations=1)

        assert len(report.levels) == levels
        assert bool(report.notes) == (not levels)
        if levels:
            assert (report.before.p95_ms, report.after.p95_ms) == (900, 20)


def test_a_run_without_end_keeps_its_newest_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory does not grow, and the report says what is missing; what ran first is still known."""
    monkeypatch.setattr("tuner.report.recorder.MOST_WINDOWS", 3)
    description = Description(
        target="fake://x/m", server="triton", version="2.51.0", model="m", writable=True, quantiles=True
    )
    recorder = Recorder(title="t", command="c", description=description, space=SPACE, objective=OBJECTIVE)
    for number in range(1, 6):
        m = measurement(0.02, running=configuration(2))
        recorder.add(WindowRecord(number=number, measurement=m, decision=Hold(reason="good"), level=24))
    recorder.compare_ends(configuration(2))

    report = recorder.report(failed=0, sent=5, reconfigurations=0)

    assert [window.number for window in report.windows] == [3, 4, 5]
    assert any("2 before them were left out" in note for note in report.notes)
    assert any("What ran before is the best" in note for note in report.notes)


def test_a_run_without_end_keeps_what_ran_first_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its windows is in the report any more; the newest under the load of the end are compared."""
    monkeypatch.setattr("tuner.report.recorder.MOST_WINDOWS", 3)
    monkeypatch.setattr("tuner.report.recorder.MOST_BEFORE", 2)
    description = Description(target="t", server="s", version="1", model="m", writable=True, quantiles=False)
    recorder = Recorder(title="t", command="c", description=description, space=SPACE, objective=OBJECTIVE)
    first, two = configuration(), configuration(2)
    windows = [(0.1, first, 24), (0.9, first, 24), (0.7, first, 24), (0.5, first, 30), *[(0.02, two, 24)] * 5]
    for number, (latency, running, level) in enumerate(windows):
        m = measurement(latency, running=running)
        recorder.add(WindowRecord(number=number, measurement=m, decision=Hold(reason="so"), level=level))
    recorder.compare_ends(two)

    report = recorder.report(failed=0, sent=1, reconfigurations=1)

    assert {window.configuration["max_batch_size"] for window in report.windows} == {2}
    assert report.before is not None
    assert report.after is not None
    assert (report.before.windows, report.before.p95_ms) == (2, 800)  # type: ignore[attr-defined]
    assert (report.after.windows, report.after.p95_ms) == (3, 20)  # type: ignore[attr-defined]


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


def test_a_report_on_an_unknown_statistic_is_damaged(tmp_path: Path) -> None:
    """Its page could not be drawn."""
    recorded().model_copy(update={"statistic": "p90"}).save(tmp_path / "report.json")

    with pytest.raises(StorageError, match=r"report\.json"):
        Report.load(tmp_path / "report.json")


@pytest.mark.parametrize(
    "change",
    [
        {"costs": [1.0], "visits": [1], "measured": []},  # of fewer configurations than the knobs have
        {"chosen": {"nothing": 1.0}},
    ],
)
def test_a_report_whose_parts_do_not_fit_together_is_damaged(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """Each part has the right form; the page that was there stays."""
    report = recorded()
    data, page = write_report(report, tmp_path)
    before = page.read_bytes()
    learned = report.learned[0].model_copy(update=change)
    report.model_copy(update={"learned": [learned]}).save(data)

    with pytest.raises(StorageError, match=r"report\.json: cannot be drawn, its parts do not fit together"):
        redraw_report(tmp_path)

    assert page.read_bytes() == before
