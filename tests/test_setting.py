"""What a server is tuned toward: checked when it is made, read from text, and named alike everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import InvalidInput
from tuner.objective import Objective, Slo
from tuner.option import build, options_of
from tuner.setting import SIMULATED, Load, Setting, Sli
from tuner.workload import workload
from tuner.workload.schedule import RateSchedule

SLO = Slo(statistic="p95", latency=0.03)


def test_a_setting_is_made_from_what_users_write() -> None:
    """Each option is read as its field wants it; what is left out has its default."""
    setting = build(
        Setting,
        {
            "slo": "p95=30ms",
            "objective": "cpu",
            "change_cost": 0.5,
            "rate": 100.0,
            "shapes": [" image = 224, 224,3"],
            "sli_prometheus": "http://prometheus:9090",
            "sli_query": "latency",
            "grids": ["max_batch_size=1,4", "max_queue_delay=0,2ms"],
            "window": "2s",
        },
    )

    assert setting == Setting(
        objective=Objective(slo=SLO, goal="cpu", change_cost=0.5),
        load=Load(rate=100.0, shapes={"image": (224, 224, 3)}),
        sli=Sli(prometheus="http://prometheus:9090", query="latency"),
        grids={"max_batch_size": (1.0, 4.0), "max_queue_delay": (0.0, 0.002)},
        window=2.0,
    )
    assert setting.foreign_limit is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"slo": "p95"}, "--slo: 'p95' has no '='"),
        ({"objective": "money"}, "--objective"),
        ({"change_cost": -1.0}, "--change-cost"),
        ({"change_cost": "1"}, "--change-cost: '1' is not a weight"),
        ({"change_cost": True}, "--change-cost: True is not a weight"),
        ({"rate": 0.0}, "rate: 0.0 is not a rate"),
        ({"rate": (5.0, 1.0)}, "rate"),
        ({"rate": (5.0, 6.0, 7.0)}, "rate: (5.0, 6.0, 7.0) is not a rate or range"),
        ({"rate": (5.0, "6")}, "rate: (5.0, '6') is not a rate or range"),
        ({"rate": [100, 200]}, "rate: [100, 200] is not a rate or range"),
        ({"rate": "200"}, "rate: '200' is not a rate or range"),
        ({"rate": True}, "rate: True is not a rate or range"),
        ({"rate": 10.0, "arrival": "poisson:5"}, "--arrival: given together with --rate"),
        ({"rate": 10.0, "workload": workload("ramp", 14.0)}, "rate: 10.0 stands beside a workload with a"),
        ({"shapes": ["image"]}, "--shape: 'image' is not a shape"),
        ({"shapes": ["image=1", "image=2"]}, "--shape image: given twice"),
        ({"shapes": ["image=1", " image = 2"]}, "--shape image: given twice"),
        ({"shapes": [" =2"]}, "--shape: '=2' is not a shape"),
        ({"shapes": [f"image={'9' * 5000}"]}, "--shape: 'image=999"),
        ({"foreign_limit": -0.1}, "--foreign-limit"),
        ({"foreign_limit": "1"}, "--foreign-limit: '1' is not a number of cores"),
        ({"sli_query": "up"}, "--sli-prometheus: missing"),
        ({"sli_prometheus": "http://p"}, "--sli-query: missing"),
        ({"grids": ["max_batch_size"]}, "--knob"),
        ({"grids": ["inter_op=1", "inter_op=2"]}, "--knob inter_op: given twice"),
        ({"window": "0.1s"}, "--window"),
        ({"window": 0.0}, "window: 0.0 is not a positive number"),
        ({"window": True}, "window: True is not a positive number"),
        ({"slo": 0.03}, "--slo: 0.03 is no SLO"),
        ({"workload": 3}, "--workload: 3 is no workload"),
    ],
)
def test_mistakes_are_told_by_the_name_that_the_user_knows(given: dict[str, Any], names: str) -> None:
    """When the setting is made, before anything is attached or simulated."""
    with pytest.raises(InvalidInput) as raised:
        build(Setting, {"slo": "p95=30ms"} | given)

    assert str(raised.value).startswith(names)


def test_a_load_has_one_nominal_rate_or_none() -> None:
    """A range or a schedule has none that a live server could be sent."""
    assert Load().nominal is None
    assert Load(rate=5).nominal == 5
    for rate in ((1.0, 2.0), RateSchedule.constant(5.0)):
        with pytest.raises(InvalidInput, match="is not one number"):
            Load(rate=rate).nominal  # noqa: B018 - it raises


def test_windows_of_live_servers_have_a_usual_length() -> None:
    """Five seconds, unless the setting says otherwise; environments have their own."""
    assert Setting(objective=Objective(slo=SLO)).seconds == 5.0
    assert Setting(objective=Objective(slo=SLO), window=2.0).seconds == 2.0


def test_shares_of_the_cpu_refer_to_the_machine() -> None:
    """The objective is the setting's, with the machine's cores."""
    objective = Setting(objective=Objective(slo=SLO, goal="cpu")).objective_on(4.0)

    assert objective == Objective(slo=SLO, goal="cpu", cores=4.0)


def test_options_of_simulations_exist() -> None:
    """They are named by hand."""
    assert set(SIMULATED) <= set(options_of(Setting))
