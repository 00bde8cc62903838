"""The daemon's configuration file: what it can say, and the messages about mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import NoReturn
from zoneinfo import ZoneInfoNotFoundError

import pytest

from tests.builders import SPACE
from tuner.agents.rrl import RRL
from tuner.control.daemon.config import DaemonConfig, GuardSection
from tuner.control.decide.limits import GuardLimits
from tuner.errors import InvalidInput
from tuner.files.yaml_file import load_yaml
from tuner.knobs import KnobSpace
from tuner.profiler.indicator import make_indicator

TARGET = "targets:\n  - name: a\n    url: sim://mlp\n    slo: p95=30ms\n"
PROBED = "    probe_rate: 5\n    shapes: "

Load = Callable[[str], DaemonConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a file and load it."""

    def call(text: str) -> DaemonConfig:
        path = tmp_path / "servetune.yaml"
        path.write_text(text)
        return load_yaml(path, DaemonConfig)

    return call


def at(text: str, zone: str = "+00:00") -> float:
    """Seconds since 1970 of a moment."""
    return datetime.fromisoformat(f"{text}{zone}").astimezone(UTC).timestamp()


def test_the_example_is_right(load: Load) -> None:
    """What `tuner config example` prints can be used."""
    config = load(files("tuner.control.daemon").joinpath("example.yaml").read_text())

    first = config.targets[0]
    assert first.window == 10.0
    assert config.keep == 30 * 86400
    assert first.knobs["max_queue_delay"] == (0.0, 0.001, 0.002, 0.005)
    assert first.guard.limits().step == 2


def test_little_has_to_be_said(load: Load, tmp_path: Path) -> None:
    """Name, server and SLO; by default nothing is changed."""
    config = load(TARGET)

    target = config.targets[0]
    assert (target.mode, target.objective, target.window) == ("recommend", "latency", 10.0)
    assert config.state == tmp_path / "servetune.db"
    assert target.may_change(0.0)


def test_bounds_take_the_values_of_the_server_between_them(load: Load) -> None:
    """A list says the values themselves; durations may be written as such."""
    config = load(
        TARGET + "    knobs: {max_batch_size: {least: 2, most: 8}, max_queue_delay: [0, 5ms], instances: 2}\n"
    )

    grids = config.targets[0].grids(SPACE)

    assert grids == {"max_batch_size": (2, 4, 8), "max_queue_delay": (0.0, 0.005), "instances": (2.0,)}


def test_the_values_of_an_earlier_life_join_the_grids_of_the_server(load: Load) -> None:
    """Within the bounds, if there are any, but no list of the file's own."""
    before = {"max_batch_size": [1.0, 32.0], "max_queue_delay": [0.005], "instances": [4.0]}
    config = load(TARGET + "    knobs: {max_batch_size: {least: 8, most: 24}, instances: [1, 2]}\n")

    grids = config.targets[0].grids(SPACE, before)

    assert grids == {
        "max_batch_size": (8, 16),
        "max_queue_delay": (0.0, 0.002, 0.005, 0.01),
        "instances": (1.0, 2.0),
    }
    assert config.targets[0].grids(SPACE, {"max_batch_size": [16.0]})["max_batch_size"] == (8, 16)


def test_a_policy_brings_its_grids(load: Load, tmp_path: Path) -> None:
    """The server's own contain what it happens to run, and are others when it runs something else."""
    space = KnobSpace([replace(SPACE.knobs[0], grid=(1, 2, 64)), *SPACE.knobs[1:]])
    RRL(space, synchronous=True).save(tmp_path / "policy")
    config = load(TARGET + f"    policy: {tmp_path / 'policy'}\n    knobs: {{instances: [1, 2]}}\n")

    grids = config.targets[0].grids(SPACE, {"max_batch_size": [6.0]})

    assert grids["max_batch_size"] == (1, 2, 64)
    assert grids["instances"] == (1, 2)


def test_inputs_of_our_own_requests_may_have_shapes(load: Load) -> None:
    """As `--shape` of the command line gives them."""
    target = load(TARGET + PROBED + "{image: [224, 224, 3], tokens: 128}\n").targets[0]

    load_of_ours = target.setting({}).load
    assert (load_of_ours.rate, load_of_ours.shapes) == (5, {"image": (224, 224, 3), "tokens": (128,)})


def test_the_latency_may_come_from_elsewhere(load: Load, tmp_path: Path) -> None:
    """A Prometheus server, its query, and a token in a file beside this one."""
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o600)
    sli = "    sli: {prometheus: https://prom:9090, query: 'gateway[{window}]', token_file: token}\n"

    target = load(TARGET + sli).targets[0]

    indicator = make_indicator(target.setting({}).sli, "p99")
    assert indicator is not None
    assert indicator.token is not None
    assert (indicator.url, indicator.statistic, indicator.token.value) == (
        "https://prom:9090",
        "p99",
        "secret",
    )
    assert "secret" not in repr(indicator) + repr(target)
    with pytest.raises(InvalidInput, match=r"targets\[0\]\.sli.*is not a web address"):
        load(TARGET + "    sli: {prometheus: prom, query: x}\n")


@pytest.mark.parametrize(
    ("knobs", "names"),
    [
        ("{speed: {least: 1}}", "a knob speed: unknown; the knobs are max_batch_size"),
        ("{max_batch_size: {least: 5, most: 7}}", "no value within its bounds; it has 1, 2, 4, 8, 16"),
    ],
)
def test_bounds_that_fit_no_knob_are_told(load: Load, knobs: str, names: str) -> None:
    """As soon as the server's knobs are known."""
    config = load(TARGET + f"    knobs: {knobs}\n")

    with pytest.raises(InvalidInput) as raised:
        config.targets[0].grids(SPACE)

    assert names in str(raised.value)


@pytest.mark.parametrize(
    ("moment", "allowed"),
    [
        ("2026-03-02T21:59", False),  # Monday
        ("2026-03-02T22:00", True),
        ("2026-03-03T05:59", True),
        ("2026-03-03T06:00", False),
        ("2026-03-07T05:59", True),  # Saturday morning: began on Friday
        ("2026-03-07T12:00", True),
        ("2026-03-08T23:59", True),
        ("2026-03-09T00:00", False),  # Sunday's ends; Sunday evening opens nothing
    ],
)
def test_changes_are_allowed_in_maintenance_windows(load: Load, moment: str, allowed: bool) -> None:
    """Also over midnight, in the target's own time zone."""
    config = load(
        TARGET
        + "    maintenance:\n      - {days: mon-fri, from: '22:00', to: '06:00'}\n"
        + "      - {days: 'sat, sun', from: '00:00', to: '24:00'}\n"
        + "    time_zone: Europe/Berlin\n"
    )

    assert config.targets[0].may_change(at(moment, "+01:00")) == allowed


def test_utc_needs_no_database_of_time_zones(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images have none; another zone is refused with the name of what is missing."""

    def find(name: str) -> NoReturn:
        raise ZoneInfoNotFoundError(f"No time zone found with key {name}")

    monkeypatch.setattr("tuner.control.daemon.config.ZoneInfo", find)
    monkeypatch.setattr("tuner.control.daemon.config.available_timezones", set, raising=False)
    windows = "    maintenance: [{from: '02:00', to: '03:00'}]\n"

    assert load(TARGET).targets[0].may_change(0.0)
    for more in ("", "    time_zone: UTC\n"):
        target = load(TARGET + windows + more).targets[0]
        assert [target.may_change(at(f"2026-03-02T{hour}:30")) for hour in ("01", "02")] == [False, True]
    with pytest.raises(
        InvalidInput, match=r"time_zone: this machine knows no .*; install the package tzdata"
    ):
        load(TARGET + "    time_zone: Europe/Berlin\n")


def test_days_may_wrap_around_the_week(load: Load) -> None:
    """From Friday to Monday."""
    config = load(TARGET + '    maintenance: [{days: fri-mon, from: "01:00", to: "02:00"}]\n')

    days = [config.targets[0].may_change(at(f"2026-03-{day:02d}T01:30")) for day in range(2, 9)]

    assert days == [True, False, False, False, True, True, True]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("state: x.db\n", "line 1: targets: is missing"),
        ("targets: []\n", "line 1: targets: "),
        (TARGET.replace("p95=30ms", "p77=3ms"), "line 4: targets[0].slo: 'p77' is not a statistic"),
        (TARGET + "    slo2: 1\n", "line 5: targets[0].slo2: there is no such field; did you mean 'slo'?"),
        (TARGET + "    mode: aply\n", "line 5: targets[0].mode: must be 'observe', 'recommend' or 'apply'"),
        (
            TARGET + "    objective: speed\n",
            "line 5: targets[0].objective: must be 'latency', 'strict', 'cpu'",
        ),
        (TARGET + "    window: 10\n", "line 5: targets[0].window: must be text, but got 10"),
        (TARGET + "    window: 0.1s\n", "must lie between 0.2 s and 600 s"),
        (TARGET + "    window: soon\n", "'soon' is not a duration"),
        (
            TARGET + "    knobs:\n      max_batch_size: []\n",
            "line 6: targets[0].knobs.max_batch_size: needs at least",
        ),
        (TARGET + "    knobs: {a: {lest: 1}}\n", "there is no 'lest'"),
        (TARGET + "    knobs: {a: {least: 3, most: 1}}\n", "`least <= most` must hold"),
        (TARGET + "    knobs: {a: [1, .nan]}\n", "must be finite"),
        (TARGET + "    time_zone: Mars/Base\n", "there is no time zone 'Mars/Base'"),
        (
            TARGET + "    maintenance: [{days: noday, from: '1:00', to: '2:00'}]\n",
            "maintenance[0].days: 'noday' names",
        ),
        (
            TARGET + "    maintenance: [{from: '25:00', to: '2:00'}]\n",
            "maintenance[0].from: must be a time of day",
        ),
        (TARGET + "    maintenance: [{from: '1:00'}]\n", "maintenance[0].to: is missing"),
        (
            TARGET + "    maintenance: [{from: '22:00', to: '22:00'}]\n",
            'line 5: targets[0].maintenance[0].to: is the time of `from`; for whole days write from: "00:00"',
        ),
        (TARGET + "    maintenance: [{from: '00:00', to: '00:00'}]\n", "maintenance[0].to: is the time of"),
        (TARGET + "    maintenance: [{from: '24:00', to: '24:00'}]\n", "maintenance[0]: `from` and `to` are"),
        (TARGET + "    guard: {budget: 2}\n", "guard.budget: must be less than or equal to 1, but got 2"),
        (TARGET.replace("sim://mlp", "mlp"), "line 3: targets[0].url: 'mlp' has no known scheme"),
        (
            TARGET.replace("sim:", "ftp:"),
            "has no known scheme; begin with one of dispatch://, sim://, tfserving://",
        ),
        (
            TARGET.replace("sim:", "triton:"),
            "line 3: targets[0].url: 'triton://mlp' does not name a host and",
        ),
        (
            TARGET.replace("sim://mlp", "triton://h/m?metric=off"),
            "line 3: targets[0].url: option 'metric' is unknown or given twice; known: metrics, version",
        ),
        (TARGET + "    seed: -1\n", "targets[0].seed: must be greater than or equal to 0, but got -1"),
        (TARGET + "    seed: 5000000000\n", "targets[0].seed: must be less than 4294967296"),
        (TARGET + "    guard: {step: 1.0e+300}\n", "guard.step: must be less than or equal to 1000"),
        (TARGET + "    guard: {patience: 1000000000000}\n", "guard.patience: must be less than or equal to"),
        ("http: {listen: '127.0.0.1:\u00b2'}\n" + TARGET, "http.listen: must be such as 127.0.0.1:7411"),
        (TARGET.replace("name: a", "name: 'a b'"), "line 2: targets[0].name"),
        (TARGET + TARGET.removeprefix("targets:\n"), "two targets have the name 'a'"),
        (TARGET + "    policy: learned\n", "line 5: targets[0].policy: there is no folder"),
        (TARGET + "    change_cost: -1\n", "change_cost: must be greater than or equal to 0"),
        (
            TARGET + "    shapes: {image: [224, 224, 3]}\n",
            "line 5: targets[0].shapes: are those of our own requests",
        ),
        (
            TARGET + PROBED + "{image: '224,224'}\n",
            "targets[0].shapes.image: must be sizes such as [224, 224, 3]",
        ),
        (TARGET + PROBED + "{image: []}\n", "without the batch, but got []"),
        (TARGET + PROBED + "{image: [-1, 3]}\n", "without the batch, but got [-1, 3]"),
        (TARGET + PROBED + "{image: [true]}\n", "without the batch, but got [True]"),
        (TARGET + PROBED + "[224, 224]\n", "targets[0].shapes: must be a group of `field: value`"),
    ],
)
def test_mistakes_are_told_with_line_and_field(load: Load, text: str, names: str) -> None:
    """And with what to write instead."""
    with pytest.raises(InvalidInput) as raised:
        load(text)

    assert names in str(raised.value), str(raised.value)
    assert "servetune.yaml" in str(raised.value)


@pytest.mark.parametrize("other", ["triton://h:1/m", "triton://H:1/m/?metrics=8002", "triton://g,h:1/m"])
def test_two_targets_may_not_share_a_server(load: Load, other: str) -> None:
    """Each would undo what the other does, however they are written; simulated servers are not shared."""
    targets = {"one": "sim://mlp", "two": "sim://mlp", "three": "triton://h:1/m", "four": "triton://h:1/n"}
    text = "targets:\n" + "".join(
        f"  - {{name: {n}, url: '{u}', slo: p95=30ms}}\n" for n, u in targets.items()
    )

    assert len(load(text).targets) == 4
    with pytest.raises(InvalidInput, match="'three' and 'five' would both tune m on h:1"):
        load(text + f"  - {{name: five, url: '{other}', slo: p95=30ms}}\n")


@pytest.mark.parametrize(
    "text",
    [
        TARGET.replace("sim://mlp", "triton://user:pw-123@h:1/m"),
        TARGET.replace("sim://mlp", "http://user:pw-123@h:1/m"),
        TARGET + "    sli: {prometheus: 'http://user:pw-123@prom', query: x}\n",
        TARGET + "    sli: {prometheus: 'user:pw-123@prom:9090', query: x}\n",
    ],
)
def test_passwords_in_addresses_are_refused_and_not_repeated(load: Load, text: str) -> None:
    """They would be logged and shown; the message says where they belong."""
    with pytest.raises(InvalidInput, match="token_file") as raised:
        load(text)

    assert "pw-123" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("http: {token_file: token}\n" + TARGET, "line 1: http.token_file"),
        (
            TARGET + "    sli: {prometheus: https://p, query: x, token_file: token}\n",
            "line 5: targets[0].sli.token_file",
        ),
    ],
)
def test_tokens_that_everybody_can_read_are_refused(
    load: Load, tmp_path: Path, text: str, where: str
) -> None:
    """When the file is checked; one that is not there yet may come."""
    load(text)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    with pytest.raises(InvalidInput, match="can be read by everybody; chmod o-r") as raised:
        load(text)
    token.chmod(0o640)

    load(text)
    assert where in str(raised.value)


def test_a_policy_is_one(load: Load, tmp_path: Path) -> None:
    """A folder of something else is refused before anything is attached."""
    (tmp_path / "learned").mkdir()

    with pytest.raises(InvalidInput, match=r"targets\[0\]\.policy: .*policy.json cannot be read"):
        load(TARGET + "    policy: learned\n")


def test_the_token_of_the_indicator_is_not_sent_in_the_clear(load: Load) -> None:
    """Only over TLS, or within this machine."""
    sli = "    sli: {prometheus: 'PLACE', query: x, token_file: token}\n"

    load(TARGET + sli.replace("PLACE", "https://prom:9090"))
    load(TARGET + sli.replace("PLACE", "http://localhost:9090"))
    with pytest.raises(InvalidInput, match=r"sli\.token_file: the token would be sent to http://prom:9090"):
        load(TARGET + sli.replace("PLACE", "http://prom:9090"))


def test_the_guard_of_a_file_has_the_defaults_of_the_control_loop(load: Load) -> None:
    """Without any settings of its own; only the age of a measurement follows from the window."""
    (target,) = load(TARGET).targets

    assert target.guard.limits() == GuardLimits()


def test_every_guard_rail_is_documented() -> None:
    """Each setting stands in the table of docs/daemon.md."""
    page = (Path(__file__).parents[3] / "docs" / "daemon.md").read_text()
    table = page[page.index("## What holds it back") : page.index("## Your orders")]

    assert [name for name in GuardSection.model_fields if f"`{name}`" not in table] == []
