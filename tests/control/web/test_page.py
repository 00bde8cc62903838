"""The live page in a real browser: what it shows, and that its buttons give orders."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="needs fastapi and uvicorn")
pytest.importorskip("uvicorn", reason="needs fastapi and uvicorn")
pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.builders import configuration
from tests.chromium import CHROMIUM
from tests.control.daemon.daemon_bed import Bed
from tests.control.web.site import TOKEN, Site, show_traffic
from tests.waiting import eventually
from tuner.control.daemon.phase import AbsentTarget

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium"),
    # playwright drives the browser over pipes that the interpreter closes late
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, bed: Bed) -> Iterator[Page]:
    """The page of a daemon with two targets; nothing may go wrong in it."""
    bed.write(("a", "apply", ""), ("b", "recommend", ""))
    with Site(bed) as site:
        eventually(lambda: all(worker.turns > 5 for worker in site.daemon.workers.values()))
        page = browser.new_page()
        wrong: list[str] = []
        page.site = site  # type: ignore[attr-defined]
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console", lambda m: wrong.append(m.text) if m.type == "error" and "401" not in m.text else None
        )
        page.goto(site.web.address)  # type: ignore[arg-type]
        yield page
        page.close()
        assert wrong == []


def give(page: Page, button: str, token: str, why: str | None = None) -> None:
    """Press a button and fill in what is asked for."""
    page.get_by_role("button", name=button, exact=True).click()
    if why is not None:
        page.get_by_label("Why").fill(why)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Confirm").click()


def test_the_page_shows_what_happens(page: Page) -> None:
    """Targets, load, latency against the SLO, the configuration, decisions with reasons."""
    expect(page.get_by_role("heading", name="a", exact=True)).to_be_visible()
    expect(page.locator("#about")).to_contain_text("p95 ≤ 30ms")
    expect(page.locator("#load polyline")).to_have_count(1)
    expect(page.locator("#latency .slo")).to_have_count(1)
    assert page.locator("#latency .change").count() >= 1
    expect(page.locator("#knobs")).to_contain_text("max_batch_size")
    expect(page.locator("#decisions")).to_contain_text("breaks 30ms")
    expect(page.locator("#decisions")).not_to_contain_text("would apply")
    expect(page.locator("#events")).to_contain_text("it runs")
    expect(page.locator("#costs .running")).to_have_count(1)
    assert page.locator("#costs .cell").count() == 5 * 3
    expect(page.locator("#slices")).to_contain_text("instances")
    expect(page.locator("#costs-title")).to_contain_text(" to ")

    page.get_by_role("button", name="b recommend").click()
    expect(page.get_by_role("heading", name="b", exact=True)).to_be_visible()
    expect(page.locator("#decisions")).to_contain_text("would apply: ")
    expect(page.get_by_role("button", name="Roll back", exact=True)).to_be_disabled()


@pytest.mark.parametrize("width", [1280, 390])
def test_many_targets_leave_the_chosen_one_in_sight(page: Page, width: int) -> None:
    """Their list scrolls: it does not stretch the cards beside it, nor push them off a narrow screen."""
    page.set_viewport_size({"width": width, "height": 860})
    expect(page.get_by_role("heading", name="a", exact=True)).to_be_visible()
    many = (
        "targets = Array.from({length: 90}, (_, n) => ({...targets[0], name: `target ${n}`})); listTargets();"
    )
    card = page.evaluate(f"() => {{ {many} return $('name').closest('.card').getBoundingClientRect(); }}")

    assert card["top"] < 500
    assert card["height"] < 300


def test_targets_are_chosen_by_keyboard(page: Page) -> None:
    """The list is asked for again every two seconds; who has come to a target by then stays there."""
    page.get_by_role("button", name="a apply").focus()
    page.keyboard.press("Tab")
    page.evaluate("refresh()")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="b", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="b recommend")).to_be_focused()


def test_the_chosen_target_outlives_a_reload(page: Page) -> None:
    """It stands in the address, so that back and forward lead from one to the other, too."""
    heading = page.locator("#name")
    expect(heading).to_have_text("a")
    page.get_by_role("button", name="b recommend").click()
    expect(heading).to_have_text("b")

    page.reload()
    expect(heading).to_have_text("b")
    page.go_back()
    expect(heading).to_have_text("a")
    page.go_forward()
    expect(heading).to_have_text("b")
    page.evaluate("location.hash = 'no such target'")
    expect(heading).to_have_text("a")
    page.evaluate("location.hash = 'b', chosen = 'a', refresh()")  # as while b is missing in the file
    page.get_by_role("button", name="b recommend").click()

    expect(heading).to_have_text("b")


def test_targets_that_do_not_run_are_counted_and_told(page: Page) -> None:
    """With the reason and since when; who walks through the list by keyboard stays where he is."""
    site = page.site  # type: ignore[attr-defined]
    page.get_by_role("button", name="b recommend").focus()
    config = next(target for target in site.daemon.config.targets if target.name == "b")
    site.daemon._absent["b"] = AbsentTarget(config=config, phase="waiting: it still hangs", since=time.time())

    expect(page.locator("#state")).to_contain_text("2 targets, 1 not running")
    expect(page.locator("#targets .bad", has_text="waiting: it still hangs, since ")).to_have_count(1)
    assert page.evaluate("document.activeElement.dataset.name") == "b"


def test_costs_have_one_scale_in_every_target(page: Page) -> None:
    """Blue keeps the SLO, orange breaks it, however much the other configurations cost."""
    (kept, edge, broken, worse) = page.evaluate("[0.5, 1, 2, 66].map(shade)")

    assert kept[2] > kept[0] + 50
    assert abs(edge[2] - edge[0]) < 10
    assert broken[0] > broken[2] + 50
    assert worse[0] > worse[2] + 50
    assert page.evaluate("duration(0.0005) + duration(0) + duration(6.031)") == "0.5ms0ms6.03s"
    cut = '{latencies: {p95: 6.031}, cut_off: 6.031}, "p95"'
    assert page.evaluate(f"latencyOf({cut})") == "over 6s"


def test_its_buttons_give_orders(page: Page) -> None:
    """Pause with a reason, resume, pin, roll back; the token is asked for and remembered by the page only."""
    give(page, "Pause", TOKEN, why="<i>a test</i>")
    expect(page.locator("#standing")).to_contain_text("paused: <i>a test</i>")
    assert page.site.ask("/api/targets/a").json["paused"] == "<i>a test</i>"  # type: ignore[attr-defined]

    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_label("Token")).to_have_value(TOKEN)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()

    give(page, "Pin", TOKEN)
    expect(page.get_by_role("button", name="Unpin", exact=True)).to_be_visible()
    assert page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"


def test_a_wrong_token_is_told(page: Page) -> None:
    """And nothing is changed."""
    give(page, "Pause", "not the token at all")

    expect(page.get_by_role("alert")).to_contain_text("the token is missing or wrong")
    assert page.site.ask("/api/targets/a").json["paused"] == ""  # type: ignore[attr-defined]


def test_cancelling_gives_no_order(page: Page) -> None:
    """The question can be taken back, also by Escape."""
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.keyboard.press("Escape")

    assert page.site.ask("/api/targets/a").json["paused"] == ""  # type: ignore[attr-defined]


def test_a_dispatcher_shows_its_sessions(page: Page) -> None:
    """Their load, batches, and what was dropped and why; its backends, and advice on its pool."""
    expect(page.locator("#traffic")).to_be_hidden()
    show_traffic(page.site)  # type: ignore[attr-defined]
    page.reload()

    expect(page.locator("#sessions")).to_contain_text("mlp")
    expect(page.locator("#sessions tr").nth(1)).to_contain_text("0.5 answered late, 2 deadline")
    expect(page.locator("#backends .bad")).to_have_text("b:1 is down: connection refused")
    expect(page.locator("#advice")).to_contain_text("Instances for mlp: another pool is advised: start 1 x")


def test_the_cost_map_shows_something_whatever_runs(page: Page) -> None:
    """Somebody has set what no grid has: what is shown is nearest to it, or was chosen and is on the grid."""
    known = page.locator("#costs .cell:not(.unknown)")
    page.site.bed.servers["b"].set(configuration(8, 0.002, 7))  # type: ignore[attr-defined]
    page.get_by_role("button", name="b recommend").click()
    expect(page.locator("#knobs tr", has_text="instances").locator("td").nth(1)).to_have_text("7")

    expect(known.first).to_be_visible()
    expect(page.locator("#slices select")).to_have_value("2")

    page.locator("#slices select").select_option("1")
    expect(known.first.locator("title")).to_have_text(re.compile("instances 1:"))
    page.evaluate("document.activeElement.blur(), slices.b.instances = 3, refresh()")  # the grid had it once
    expect(page.locator("#slices select")).to_have_value("2")
    expect(known.first.locator("title")).to_have_text(re.compile("instances 2:"))
