"""Advice on the number of accelerators."""

from __future__ import annotations

import pytest

from tuner.planning.autoscale import RecentWindows, ScalingRule, ScalingWatch, ScalingWindow, metric_text


def window(accelerators: int, bad_rate: float, idle: float) -> ScalingWindow:
    """10 s of 1,000 requests."""
    return ScalingWindow(10.0, 1000.0, 1000 * bad_rate, 10.0 * accelerators * (1 - idle))


@pytest.mark.parametrize(
    ("accelerators", "bad_rate", "idle", "desired"),
    [(10, 0.0, 0.05, 10), (10, 0.01, 0.0, 10), (10, 0.2, 0.0, 13), (10, 1.0, 0.0, 40), (10, 0.0, 1.0, 1)],
)
def test_the_paper_s_formulas(accelerators: int, bad_rate: float, idle: float, desired: int) -> None:
    """N r / (1 - r) more if the bad rate is high; fewer by the idle part but for the headroom."""
    rule = ScalingRule(most=40)

    assert rule.advise(accelerators, window(accelerators, bad_rate, idle)).desired == desired


def test_advice_agrees_with_a_flat_top() -> None:
    """From any number the right one is found in one step, if the scheduler keeps the flat top."""
    rule, needed = ScalingRule(headroom=0.0), 50
    for accelerators in (20, 40, 60, 200):
        bad, idle = max(1 - accelerators / needed, 0.0), max(1 - needed / accelerators, 0.0)

        assert rule.advise(accelerators, window(accelerators, bad, idle)).desired == needed


def test_where_all_is_late_a_thousand_times_as_many_are_asked_for() -> None:
    """By the formula infinitely many are missing, of which nobody's limit would make a number."""
    assert ScalingRule().advise(10, window(10, 1.0, 0.0)).desired == 10 + 10_000


def test_windows_of_other_servers_do_not_count() -> None:
    """The last 30 s in sum; when there are more servers, what the fewer did is forgotten."""
    recent = RecentWindows(30.0)
    assert ScalingRule().advise(2, recent.total).desired == 2
    for bad_rate in (1.0, 0.0, 0.0, 0.0):
        recent.add(2, window(2, bad_rate, 0.5))

    assert recent.total == ScalingWindow(30.0, 3000.0, 0.0, 30.0)
    recent.add(3, window(3, 0.5, 0.0))
    assert (recent.accelerators, recent.total) == (3, ScalingWindow(10.0, 1000.0, 500.0, 30.0))
    assert ScalingRule(seconds=15.0).advise(3, recent.total).desired == 3


def test_the_gauge_is_text_that_prometheus_reads() -> None:
    """With a label that names the cluster."""
    from prometheus_client.parser import text_string_to_metric_families

    (family,) = text_string_to_metric_families(metric_text(12, 'a "b"'))

    assert family.name == "servetune_desired_accelerators"
    assert (family.samples[0].labels, family.samples[0].value) == ({"cluster": 'a "b"'}, 12.0)


def test_mistakes_are_refused() -> None:
    """A threshold of 1 would never be passed."""
    with pytest.raises(ValueError, match="must hold"):
        ScalingRule(threshold=1.0)


def test_a_watch_advises_from_the_last_seconds() -> None:
    """What is long past does not count, nor do the sessions of other accelerators."""
    watch = ScalingWatch(seconds=30.0)
    for second in range(100):
        watch.answered("a", second, bad=second < 50)
        watch.answered("other", second, bad=True)
        watch.executed("a", second, 0.9)

    assert watch.advise(["a"], 100.0, 2).desired == 1  # 45 % busy, a tenth of headroom
    assert watch.advise(["a", "other"], 100.0, 2).desired == 4
    assert watch.advise(["a"], 100.0, 0).desired == 1


def test_bad_requests_that_may_stay_ask_for_nothing() -> None:
    """Half may be late: of ten accelerators' 51 % two hundredths must go, which one more can do."""
    missed = ScalingWindow(seconds=1.0, requests=100.0, bad=51.0, busy=10.0)

    assert ScalingRule(threshold=0.5, allowed=0.5).advise(10, missed).desired == 11
    assert ScalingRule(threshold=0.5).advise(10, missed).desired == 21
    with pytest.raises(ValueError, match="allowed <= threshold"):
        ScalingRule(threshold=0.1, allowed=0.2)


@pytest.mark.parametrize(("share", "desired"), [(0.02, 2), (0.1, 2), (0.11, 10), (0.45, 10), (1.0, 10)])
def test_what_fails_with_any_number_keeps_idle_accelerators(share: float, desired: int) -> None:
    """The headroom holds a few of them once they do not fail any more; more would have too few."""
    failing = ScalingWindow(10.0, 1000 * (1 - share), beyond=1000 * share, busy=15.0)

    assert ScalingRule().advise(10, failing).desired == desired


def test_what_fails_with_any_number_does_not_hide_what_is_late() -> None:
    """Half of the others were late."""
    failing = ScalingWindow(10.0, 100.0, bad=50.0, beyond=900.0, busy=100.0)

    assert ScalingRule().advise(10, failing).desired == 20


def test_a_watch_forgets() -> None:
    """Sessions begin anew; of others all is still known."""
    watch = ScalingWatch(seconds=30.0)
    for second in range(100):
        watch.answered("a", second, bad=True)
        watch.executed("b", second, 0.9)
    watch.forget(["a"], 100.0)

    assert watch.advise(["a"], 100.0, 3).desired == 3
    assert watch.advise(["b"], 100.0, 2).desired == 1
    for second in range(100, 110):
        watch.executed("a", second, 0.9)
    assert watch.advise(["a"], 110.0, 3).desired == 3
    for second in range(110, 120):
        watch.executed("a", second, 0.9)
    assert watch.advise(["a"], 120.0, 3).desired == 1


def test_what_fewer_accelerators_did_is_forgotten() -> None:
    """Two were too few, and four may be enough; when one of them goes, what they did still counts."""
    watch = ScalingWatch(seconds=30.0)

    def advised(seconds: range, accelerators: int, *, bad: bool) -> int:
        for second in seconds:
            watch.answered("a", second, bad=bad)
            watch.executed("a", second, 0.9 * accelerators)
        return watch.advise(["a"], seconds.stop, accelerators).desired

    assert advised(range(40), 2, bad=True) > 4
    assert advised(range(40, 41), 4, bad=False) == 4
    assert advised(range(41, 71), 4, bad=False) == 4
    assert advised(range(71, 81), 4, bad=True) > 4
    assert advised(range(81, 82), 3, bad=True) > 3
    assert advised(range(82, 83), 4, bad=True) > 4  # it came back: that is no growth


def test_fewer_accelerators_for_long_are_what_a_session_had() -> None:
    """Three for more than half a minute were too few; when there are four, they begin anew."""
    watch = ScalingWatch(seconds=30.0)
    for second in range(80):
        watch.answered("a", second, bad=second >= 40)
        advice = watch.advise(["a"], second, 4 if second < 40 else 3)

    assert advice.desired > 3
    assert watch.advise(["a"], 80.0, 4).desired == 4


def test_sessions_begin_anew_together_where_one_of_them_had_fewer_accelerators() -> None:
    """What it did with two of them says nothing about the four that it shares with the other now."""
    watch = ScalingWatch(seconds=30.0)
    for second in range(40):
        watch.answered("a", second, bad=True)
        watch.answered("b", second, bad=False)
        watch.executed("b", second, 3.9)
        watch.advise(["a"], second, 2)
        watch.advise(["b"], second, 4)

    assert watch.advise(["a", "b"], 40.0, 4).desired == 4


def test_batches_that_began_before_a_window_make_nobody_busier_than_busy() -> None:
    """They are counted when they end."""
    assert ScalingWindow(seconds=10.0, busy=25.0).idle(2) == 0.0


def test_a_watch_changes_nothing_until_it_has_seen_enough() -> None:
    """The first request may be late for many reasons."""
    watch = ScalingWatch()
    watch.answered("a", 0.0, bad=True)

    assert watch.advise(["a"], 1.0, 3).desired == 3
