"""What ``tuner simulate`` and ``tuner goodput`` share: the scenario's file, and how an outcome is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tuner.cli.console import make_table, plain, rate_text
from tuner.cli.output import check_file, store_json

if TYPE_CHECKING:
    from tuner.cluster.epochs import EpochRun
    from tuner.cluster.goodput import Good
    from tuner.cluster.outcome import Outcome, SessionOutcome
    from tuner.cluster.scenario import Rental, Scenario

__all__ = [
    "File",
    "Seconds",
    "Seed",
    "bad_text",
    "epochs_table",
    "load_scenario",
    "outcome_json",
    "outcome_table",
    "save",
    "with_threshold",
]

ROWS = 40
"""Sessions in the table; of more, those with the highest bad rate."""

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The scenario; see docs/simulate.md.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Instead of the file's.")]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.001, max=1e7, help="Measured time, instead of the file's."),
]


def load_scenario(
    path: Path,
    use: Literal["simulate", "goodput"],
    seed: int | None,
    seconds: float | None,
    outputs: Mapping[str, Path | None],
) -> Scenario:
    """Read the scenario's file, after checking that results can be stored.

    Args:
        path: The file.
        use: The command, which decides what the file must hold.
        seed: Instead of the file's, if given.
        seconds: Instead of the file's, if given.
        outputs: Files that are to be written, by option; None for those not wanted.

    Raises:
        TunerError: The file has mistakes, or a folder cannot be written.
    """
    from tuner.cluster.scenario import Scenario
    from tuner.errors import InvalidInput
    from tuner.files.yaml_file import load_yaml

    scenario = load_yaml(path, Scenario, use=use)
    for option, file in outputs.items():
        check_file(file, option)
    if seconds is not None and scenario.requests is not None:
        raise InvalidInput("--seconds", "the file is measured over its `requests`", "leave them out there")
    given = {"seed": seed, "seconds": seconds}
    changed = scenario.model_copy(update={name: value for name, value in given.items() if value is not None})
    if seconds is not None and (problem := changed.too_many_requests()):
        raise InvalidInput("--seconds", problem)
    return changed


def with_threshold(scenario: Scenario, report: Callable[[str], None], good: Good | None = None) -> Scenario:
    """Return the scenario with a threshold found by hill climbing, if its policy is ``drs`` and has none.

    Args:
        scenario: As in the file.
        report: Is told of every threshold that was tried.
        good: Which bad rates are good; if None, what the quantile of each session leaves.
    """
    from tuner.cluster.goodput import Good
    from tuner.cluster.threshold import climb_threshold

    if scenario.policy != "drs" or "threshold" in scenario.options:
        return scenario
    climb = climb_threshold(
        scenario,
        good=Good() if good is None else good,
        progress=lambda items, rate: report(f"threshold {items}: {rate_text(rate)} requests/s"),
    )
    return scenario.model_copy(update={"options": {**scenario.options, "threshold": climb.threshold}})


def outcome_json(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    """Return what is stored of an outcome.

    Under a distribution policy, and of rented instances, its options are, too; of these also their cost and
    what each type served.
    """
    if scenario.rental is not None:
        return {"options": scenario.options, **scenario.rental.to_json(scenario.each_session, outcome)}
    return ({"options": scenario.options} if scenario.distributes else {}) | outcome.to_json()


def save(path: Path | None, scenario: Scenario, seconds: float, content: dict[str, Any]) -> None:
    """Store a result with what it is of, and print where; does nothing without a path."""
    head = {"policy": scenario.policy, "seed": scenario.seed, "seconds": round(seconds, 9)}
    store_json(path, head | content)


def bad_text(outcome: Outcome) -> str:
    """Return the share of all requests that was late or dropped, with how far chance moves it."""
    from tuner.cluster.confidence import bad_interval

    bad = round(outcome.bad_rate * outcome.requests)
    low, high = bad_interval(bad, outcome.requests)
    interval = f"{_percent(low)} to {_percent(high)} %, 95 % sure if requests were independent"
    return f"{100 * outcome.bad_rate:.2f} % of {outcome.requests:,} requests late or dropped ({interval})"


def outcome_table(scenario: Scenario, outcome: Outcome) -> object:
    """Return a table with a row for each session, and one for all together if there are several."""
    table = make_table(plain(_title(scenario, outcome)))
    table.add_column("session", no_wrap=True)
    for name in ("SLO ms", "requests/s", "good %", "dropped %", "late %"):
        table.add_column(name, justify="right")
    rental = scenario.rental
    for name in ("p50 ms", "p95 ms", "p99 ms", *(() if rental else ("batch", "queueing ms, max"))):
        table.add_column(name, justify="right")
    for kind, share in rental.busy(outcome).items() if rental else ():
        table.add_column(f"% by {plain(kind)}", justify="right", footer=f"{share:.0%} busy")
    table.show_footer = rental is not None
    shown = list(outcome.sessions)
    if len(shown) > ROWS:
        shown = sorted(shown, key=lambda session: -session.bad_rate)[:ROWS]
        table.caption = f"the {ROWS} sessions of {len(outcome.sessions)} with the highest bad rate"
    for session in shown:
        table.add_row(*_row(session, rental))
    if len(outcome.sessions) > 1:
        good = sum(session.good for session in outcome.sessions)
        dropped = sum(session.dropped for session in outcome.sessions)
        late = sum(session.late for session in outcome.sessions)
        shares = _shares(outcome.requests, good, dropped, late)
        table.add_row("all", "", rate_text(outcome.rate), *shares, style="bold")
    return table


def epochs_table(run: EpochRun) -> object:
    """Return a table with a row for each interval of a run with a planner; of many, the worst."""
    mean, desired = run.mean_accelerators, run.records[-1].desired
    title = f"{mean:.1f} accelerators in use on average, {desired} desired at the end"
    numbers = ("until s", "requests/s", "bad %", "accelerators", "idle %", "desired", "models loaded")
    table = make_table(title, numbers=numbers)
    shown = list(enumerate(run.records))
    if len(shown) > ROWS:
        worst = sorted(shown, key=lambda each: -each[1].bad / max(each[1].requests, 1))[:ROWS]
        shown = sorted(worst, key=lambda each: each[0])
        table.caption = (
            f"the {ROWS} of {len(run.records)} intervals with the highest bad rate; --json has all"
        )
    for index, record in shown:
        begin = run.records[index - 1].time if index else 0.0
        table.add_row(
            f"{record.time:g}",
            rate_text(record.requests / (record.time - begin)),
            *_shares(record.requests, record.bad),
            str(record.accelerators),
            f"{100 * record.idle:.0f}",
            str(record.desired),
            str(record.loaded) if record.loaded else "",
        )
    return table


def _title(scenario: Scenario, outcome: Outcome) -> str:
    options = ", ".join(f"{name} {value}" for name, value in scenario.options.items())
    policy = f"{scenario.policy}{f' ({options})' if options else ''}"
    if scenario.rental is None:
        count = len(outcome.utilisation)
        what = f"{count} accelerator{'s' * (count > 1)}"
        # Options of a batching policy may be long: `rates` or a `placement` of every session.
        named = policy if scenario.distributes else scenario.policy
        return f"{named}, {what} {outcome.mean_utilisation:.0%} busy"
    pool = ", ".join(f"{count} x {name}" for name, count in scenario.rental.pool.items())
    return f"{policy} on {pool} for {scenario.rental.cost:.4g} $/h"


def _row(session: SessionOutcome, rental: Rental | None) -> list[str]:
    times = [session.latency(share) * 1e3 for share in (0.50, 0.95, 0.99)]
    if rental is None:
        last = [_number(session.mean_batch), _number(session.max_queueing * 1e3)]
    else:
        served = rental.served(session).values()
        last = _shares(sum(served), *served, digits=1)
    return [
        plain(session.name),
        f"{session.slo * 1e3:g}",
        rate_text(session.rate),
        *_shares(session.requests, session.good, session.dropped, session.late),
        *(_number(time) for time in times),
        *last,
    ]


def _shares(requests: int, *counts: int, digits: int = 2) -> list[str]:
    return [f"{100 * count / requests:.{digits}f}" if requests else "-" for count in counts]


def _percent(share: float) -> str:
    """Return a share in percent without an exponent: `.2g` writes 100 as 1e+02."""
    return f"{Decimal(f'{100 * share:.{2 if share < 0.1 else 4}g}'):f}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"
