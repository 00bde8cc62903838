"""When another pool is worth a switch: sizes that change, load that grows or falls, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.cluster.scenario import Scenario, Session
from tuner.errors import InvalidInput
from tuner.planning.pools.paper import paper_catalogue
from tuner.planning.pools.planner import plan_scenario
from tuner.planning.pools.replan import Replanner, Rules
from tuner.planning.pools.switch import make_switch, running_pool
from tuner.workload.sizes import SizeDistribution, parse_sizes

SESSION = Session(name="a", model="rm2", slo_ms=350, sizes="paper")
PAPER = parse_sizes("paper")
CHOSEN = {"g4dn.xlarge": 1, "r5n.large": 13}
PRICE = {kind.name: kind.price for kind in paper_catalogue()}


def planner(pool: dict[str, int] = CHOSEN, **fields: Any) -> Replanner:
    rules = Rules(**fields)
    return Replanner(SESSION, paper_catalogue(), 2.5, pool, planned=PAPER, rules=rules)


def pass_by(
    watch: Replanner, sizes: SizeDistribution, rate: float, count: int, start: float = 0.0, seed: int = 1
) -> float:
    """Let requests come; return the time of the last."""
    rng = np.random.default_rng(seed)
    times = start + np.cumsum(rng.standard_exponential(count)) / rate
    for now, items in zip(times.tolist(), sizes.sample(rng, count).tolist(), strict=True):
        watch.observe(now, items)
    return float(times[-1])


def test_nothing_is_decided_from_few_queries() -> None:
    """Below a thousand requests the pool stays."""
    watch = planner()
    pass_by(watch, PAPER, 90.0, 999)

    decision = watch.decide(100.0)

    assert (decision.do, decision.pool) == ("keep", CHOSEN)
    assert decision.reason == "only 999 requests were seen, 1000 are needed"
    assert decision.switch.none


def test_a_pool_that_is_right_stays() -> None:
    """Under the load and sizes that it was planned for, it is kept, at any look."""
    watch = planner()
    now = 0.0
    for seed in range(20):
        now = pass_by(watch, PAPER, 85.0, 1000, start=now, seed=seed)
        decision = watch.decide(now)

        assert decision.do == "keep"
        assert not decision.changed
        assert decision.rate == pytest.approx(85.0, rel=0.15)


def test_a_change_of_sizes_is_seen_within_a_thousand_queries() -> None:
    """The new plan is made from the new sizes alone, and says what is gained and what the switch costs."""
    watch = planner()
    now = pass_by(watch, PAPER, 80.0, 10_000)
    now = pass_by(watch, parse_sizes("gaussian:850,30"), 80.0, 1000, start=now)

    decision = watch.decide(now)

    assert decision.do == "switch"
    assert decision.changed
    assert decision.reason.startswith("the sizes have changed: ")
    assert decision.would_serve > decision.serves * 1.05
    assert decision.gain == pytest.approx(decision.would_serve / decision.serves - 1)
    scenario = Scenario(budget=2.5, sessions=[SESSION.model_copy(update={"sizes": "gaussian:850,30"})])  # type: ignore[arg-type]
    expected = plan_scenario(scenario).chosen.counts
    assert sum(abs(decision.pool.get(name, 0) - count) for name, count in expected.items()) <= 3
    assert decision.switch.cost == pytest.approx(
        sum(PRICE[name] * count for name, count in decision.switch.start.items()) * 60 / 3600
    )


def test_sizes_that_no_instance_of_the_pool_serves_in_time() -> None:
    """A pool without a base instance for what comes now is left, whatever the load."""
    watch = planner(pool={"r5n.large": 5})
    now = pass_by(watch, PAPER, 10.0, 2000)

    decision = watch.decide(now)

    assert decision.do == "switch"
    assert decision.serves == 0
    assert decision.gain == float("inf")
    assert decision.reason.startswith("no instance meets 350 ms at 1000 items: ")


def test_load_that_grows_takes_a_larger_pool() -> None:
    """A pool that was enough for a low load is left for the one with the highest throughput."""
    watch = planner(pool={"g4dn.xlarge": 1, "r5n.large": 2})
    assert watch.decide(pass_by(watch, PAPER, 20.0, 2000)).do == "keep"
    now = pass_by(watch, PAPER, 60.0, 1500, start=1000.0)

    decision = watch.decide(now)

    assert (decision.do, decision.pool) == ("switch", CHOSEN)
    assert decision.reason.startswith("the load has grown: ")
    assert decision.switch.start == {"r5n.large": 11}
    assert decision.switch.saving < 0


def test_load_that_falls_saves_money() -> None:
    """A pool much larger than the load needs is left for the cheapest that is enough."""
    watch = planner()
    now = pass_by(watch, PAPER, 20.0, 2000)

    decision = watch.decide(now)

    assert decision.do == "switch"
    assert decision.switch.saving > 1.0
    assert decision.would_serve >= 1.2 * decision.rate
    assert decision.would_serve < decision.serves
    assert "$/h less are enough" in decision.reason
    assert decision.switch.payback < 3600


def test_the_rate_falls_when_requests_stop() -> None:
    """Time without any counts, whether it is told with a decision or as windows with no request."""
    watch, windows = planner(), planner()
    now = pass_by(watch, PAPER, 80.0, 2000)
    pass_by(windows, PAPER, 80.0, 2000)

    windows.observe_window(now, now + 1000, np.array([], np.int64))
    decision = watch.decide(now + 1000)

    assert decision.rate == pytest.approx(1.0, rel=0.02)
    assert windows.rate == decision.rate
    assert decision.do == "switch"
    assert decision.switch.saving > 0


def test_the_rate_is_that_of_the_last_thousand_requests() -> None:
    """Also of a window of which only the number is known; a request that is told late changes no clock."""
    window, single = planner(), planner()
    window.observe_window(0.0, 20.0, np.full(2000, 150))
    for now in (0.0, 2.0, 1.0):
        single.observe(now, 150)

    assert window.rate == pytest.approx(100.0)
    assert single.rate == 1.0


def test_after_a_switch_the_sizes_that_it_was_made_for_are_no_change() -> None:
    """They are those of the last thousand requests, and not what the first pool was planned for."""
    watch, rng, other = planner(), np.random.default_rng(1), parse_sizes("gaussian:850,30")
    watch.observe_window(0.0, 100.0, PAPER.sample(rng, 8000))
    watch.observe_window(100.0, 112.5, other.sample(rng, 1000))
    decision = watch.decide(112.5)
    watch.switched(decision.pool, 112.5)

    watch.observe_window(112.5, 187.5, other.sample(rng, 6000))

    assert decision.changed
    assert not watch.decide(187.5).changed


def test_a_saving_must_pay_for_the_switch() -> None:
    """With instances that take hours to start, a cheaper pool of other instances is not worth it."""
    pool = {"g4dn.xlarge": 2, "c5n.2xlarge": 3}
    now = pass_by(planner(pool), PAPER, 25.0, 2000)
    quick, slow = planner(pool), planner(pool, startup=4 * 3600.0)
    for watch in (quick, slow):
        pass_by(watch, PAPER, 25.0, 2000)

    assert quick.decide(now).do == "switch"
    assert quick.decide(now).switch.start
    assert slow.decide(now).do == "keep"
    assert "would pay for the switch only after" in slow.decide(now).reason


@pytest.mark.parametrize(
    ("pool", "rate", "least", "reason"),
    [
        ({"g4dn.xlarge": 1, "r5n.large": 2}, 60.0, 4.0, "no pool within 2.5 $/h serves much more"),
        (CHOSEN, 20.0, 0.7, "no pool that is enough is much cheaper"),
    ],
)
def test_a_gain_must_be_worth_a_switch(pool: dict[str, int], rate: float, least: float, reason: str) -> None:
    """A pool that serves four times as much, or costs 60 % less, is none where more is asked for."""
    eager, lazy = planner(pool), planner(pool, least_gain=least)
    for watch in (eager, lazy):
        now = pass_by(watch, PAPER, rate, 2000)

    assert eager.decide(now).do == "switch"
    decision = lazy.decide(now)
    assert (decision.do, decision.pool) == ("keep", pool)
    assert reason in decision.reason


def test_of_pools_of_one_price_the_one_that_serves_most_is_taken() -> None:
    """One auxiliary instance is enough, of either type; the second is twice as fast."""

    def kind(name: str, price: float, alpha_ms: float, beta_ms: float) -> dict[str, Any]:
        profile = {"m": {"alpha_ms": alpha_ms, "beta_ms": beta_ms}}
        return {"name": name, "price": price, "max_count": 9, "profile": profile}

    types = Scenario(
        catalogue=[kind("gpu", 1.0, 0.01, 5), kind("slow", 0.1, 0.1, 0), kind("fast", 0.1, 0.05, 0)],  # type: ignore[arg-type]
        budget=2.0,
        sessions=[{"name": "s", "model": "m", "slo_ms": 20, "sizes": "paper"}],  # type: ignore[arg-type]
    )
    (session,) = types.sessions
    watch = Replanner(session, types.types, 2.0, {"gpu": 1, "slow": 9}, planned=PAPER)

    decision = watch.decide(pass_by(watch, PAPER, 100.0, 2000))

    assert decision.pool == {"gpu": 1, "fast": 1}


def test_an_overload_that_no_pool_can_serve() -> None:
    """What the budget cannot buy is said, and nothing is switched."""
    watch = planner()
    now = pass_by(watch, PAPER, 500.0, 2000)

    decision = watch.decide(now)

    assert decision.do == "keep"
    assert "no pool within 2.5 $/h serves much more" in decision.reason


def test_after_a_switch_there_is_rest() -> None:
    """The pool is left alone for a while, and then judged by the sizes of then."""
    watch = planner()
    now = pass_by(watch, PAPER, 20.0, 2000)
    decision = watch.decide(now)
    watch.switched(decision.pool, now)

    assert watch.decide(now + 10).reason == "the last switch was 10 s ago"
    assert watch.decide(now + 299).reason == "the pool is enough, and the last switch was 299 s ago"
    watch.observe_window(now, now + 301, PAPER.sample(np.random.default_rng(1), int(301 * decision.rate)))
    later = watch.decide(now + 301)
    assert later.do == "keep"
    assert watch.pool == decision.pool


def test_a_pool_that_has_become_too_small_does_not_wait_for_the_rest() -> None:
    """Money was saved a minute ago, then larger requests come: once the switch is done, the next may be."""
    watch = planner()
    now = pass_by(watch, PAPER, 20.0, 2000)
    watch.switched(watch.decide(now).pool, now)

    now = pass_by(watch, parse_sizes("gaussian:600,80"), 20.0, 1800, start=now)
    decision = watch.decide(now)

    assert decision.do == "switch"
    assert decision.gain > 0
    assert decision.switch.saving < 0 < decision.switch.cost


def test_a_clock_that_begins_anew() -> None:
    """Nothing is decided until a thousand requests have times of it, whenever the last switch was before."""
    watch = planner(startup=0.0)
    now = pass_by(watch, PAPER, 85.0, 2000, start=5000.0)
    watch.switched(CHOSEN, now)

    watch.clock_restarted()
    now = pass_by(watch, PAPER, 85.0, 999)
    early = watch.decide(now)
    now = pass_by(watch, PAPER, 85.0, 1000, start=now)
    later = watch.decide(now)

    assert early.reason == "only 999 requests were seen, 1000 are needed"
    assert "last switch" not in later.reason
    assert later.rate == pytest.approx(85.0, rel=0.1)


def test_without_a_plan_older_queries_tell_of_a_change() -> None:
    """If nobody says what the pool was planned for, the recent requests are compared with the older ones."""
    watch = Replanner(SESSION, paper_catalogue(), 2.5, CHOSEN)
    now = pass_by(watch, PAPER, 85.0, 5000)
    assert not watch.decide(now).changed
    now = pass_by(watch, parse_sizes("gaussian:600,80"), 85.0, 1000, start=now)

    assert watch.decide(now).changed


def test_chance_in_the_sizes_of_a_plan_is_no_change() -> None:
    """After a switch the planned sizes are a thousand requests, which are themselves off by chance."""
    sizes, pool = parse_sizes("gaussian:300,100"), {"g4dn.xlarge": 1}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        watch = Replanner(SESSION, paper_catalogue()[:1], 0.6, pool, rules=Rules(startup=0.0))
        watch.observe_window(0.0, 10.0, sizes.sample(rng, 1000))
        watch.switched(pool, 10.0)
        for begin in range(10, 70, 10):
            watch.observe_window(begin, begin + 10, sizes.sample(rng, 1000))

            assert not watch.decide(begin + 10).changed


def test_mistakes() -> None:
    """Types that are not offered, and rules that make no sense."""
    with pytest.raises(InvalidInput, match=r"pool p3: is not in the catalogue; use g4dn\.xlarge"):
        planner(pool={"p3": 1})
    for wrong in ({"share": 0.0}, {"headroom": 0.5}, {"horizon": 0.0}, {"rest": -1.0}):
        with pytest.raises(ValueError, match="must"):
            Rules(**wrong)


@pytest.mark.parametrize("budget", [-1.0, 0.0, float("nan"), float("inf"), "2.5", None])
def test_a_budget_that_buys_nothing_is_refused_at_once(budget: Any) -> None:
    """It was found out at the first decision, a thousand requests later, or ended in a TypeError."""
    with pytest.raises(InvalidInput, match=r"budget: must be \$/h above 0, but got "):
        Replanner(SESSION, paper_catalogue(), budget, CHOSEN)


@pytest.mark.parametrize("count", [-1, 1.5, "2"])
def test_a_pool_has_whole_numbers_of_instances(count: Any) -> None:
    """Likewise."""
    with pytest.raises(InvalidInput, match=r"pool r5n\.large: must be a number of instances, but got "):
        planner(pool={"r5n.large": count})


@pytest.mark.parametrize(("now", "items"), [(float("nan"), 150), (float("inf"), 150), (1.0, 0), (1.0, 1001)])
def test_a_request_that_cannot_be_is_not_noted(now: float, items: int) -> None:
    """Neither its time, which the load is computed from, nor its size."""
    watch = planner()
    watch.observe(0.0, 150)

    with pytest.raises(ValueError, match="must"):
        watch.observe(now, items)

    watch.observe(0.5, 150)
    assert watch.rate == 2
    assert watch.decide(1.0).reason.startswith("only 2 requests were seen")


@pytest.mark.parametrize(
    ("begin", "end", "sizes"),
    [
        (float("nan"), 2.0, [150]),
        (float("-inf"), 2.0, [150]),
        (1.0, float("inf"), []),
        (1.0, 2.0, [150, 0]),
        (1.0, 2.0, [150, 1001]),
    ],
)
def test_a_window_that_cannot_be_is_not_noted(begin: float, end: float, sizes: list[int]) -> None:
    """Neither its times nor its sizes, of which the first may be usable."""
    watch = planner()
    watch.observe(0.0, 150)

    with pytest.raises(ValueError, match="must"):
        watch.observe_window(begin, end, np.array(sizes, np.int64))

    watch.observe(0.5, 150)
    assert watch.rate == 2
    assert watch.decide(1.0).reason.startswith("only 2 requests were seen")


def test_a_switch_is_what_differs() -> None:
    """Instances to start and to stop; what is started is paid for while it starts."""
    switch = make_switch({"a": 2, "b": 1}, {"a": 1, "b": 4}, {"a": 1.0, "b": 0.1}, seconds=90.0)

    assert (switch.start, switch.stop) == ({"b": 3}, {"a": 1})
    assert switch.cost == pytest.approx(0.3 * 90 / 3600)
    assert switch.saving == pytest.approx(0.7)
    assert switch.payback == pytest.approx(0.3 * 90 / 0.7)
    assert switch.text == "start 3 x b and stop 1 x a"
    assert make_switch({"a": 1}, {"a": 1}, {"a": 1.0}).none


def test_pools_of_one_price_cost_the_same() -> None:
    """Also where the sums of their prices differ by rounding; and nothing is saved without a change."""
    switch = make_switch({"a": 3}, {"b": 1}, {"a": 0.1, "b": 0.3})

    assert (switch.saving, switch.money) == (0, "the same price")
    assert str(make_switch({"a": 1}, {"a": 1}, {"a": 1.0}).to_json()["saving"]) == "0.0"
    assert make_switch({"a": 3}, {"b": 1}, {"a": 0.1, "b": 0.2}).money == "0.1 $/h less"
    assert make_switch({"a": 1}, {"b": 1}, {"a": 0.1, "b": 0.3}).money == "0.2 $/h more"


def test_a_pool_may_be_switched_before_any_request_is_seen() -> None:
    """By hand, say; what the pool was planned for is known as before."""
    watch = planner()
    watch.switched({"g4dn.xlarge": 2}, 10.0)

    decision = watch.decide(pass_by(watch, PAPER, 20.0, 1500, start=100.0))

    assert watch.pool == {"g4dn.xlarge": 2}
    assert not decision.changed


def test_a_plan_beside_the_pool_that_runs() -> None:
    """The file's instances are compared with the chosen pool."""
    scenario = Scenario(
        budget=2.5,
        sessions=[SESSION],  # type: ignore[arg-type]
        instances=[{"type": "g4dn.xlarge", "count": 2}, {"type": "r5n.large", "count": 9}],  # type: ignore[arg-type]
    )
    plan = plan_scenario(scenario)

    running = running_pool(scenario, plan)

    assert running.gain == pytest.approx(plan.chosen.bound / running.bound - 1)
    assert (running.switch.start, running.switch.stop) == ({"r5n.large": 4}, {"g4dn.xlarge": 1})
    assert "bound +21%" in running.text
    assert running.to_json()["switch"]["start"] == {"r5n.large": 4}
    same = scenario.model_copy(update={"instances": None})
    assert running_pool(same, plan) is None
