"""The live page's script under slow answers, without a browser: what it asks for, and what it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node")
PAGE = """
const vm = require("vm");
const element = new Proxy(function () {}, {
  get: (_, name) => name === Symbol.toPrimitive ? () => "" : element, set: () => true, apply: () => element,
});
const timers = [], waiting = [], shown = [];
let asked = 0, most = 0;
globalThis.document = {hidden: false, getElementById: () => element, createElement: () => element};
globalThis.location = {hash: HASH};
const heard = {};
globalThis.addEventListener = (event, hear) => { heard[event] = hear; };
globalThis.setInterval = turn => timers.push(turn);
globalThis.fetch = path => new Promise((resolve, reject) => {
  asked += path.includes("/windows");
  waiting.push({path, resolve, reject});
  most = Math.max(most, waiting.length);
});
const settle = () => new Promise(setImmediate);
const turn = async () => { timers[0](); await settle(); };  // of the page's timer
const target = name => ({name, phase: "running", mode: "apply", attainment: null});
async function answer() {
  for (const {path, resolve} of waiting.splice(0))
    resolve({ok: true, json: async () => path === "api/targets" ? [target("a"), target("b")] : []});
  await settle();
}
async function fail() {
  for (const {reject} of waiting.splice(0)) reject(new Error("no answer"));
  await settle();
}
vm.runInThisContext(SCRIPT);
globalThis.record = target => shown.push(target.name);
vm.runInThisContext("showTarget = record; showTraffic = listTargets = () => 0;");
(async () => {
  await settle();
  STEPS
  console.log(JSON.stringify({shown, asked, most}));
})();
"""
"""Elements that take whatever is done to them, and answers that come when the steps say so."""

pytestmark = pytest.mark.skipif(NODE is None, reason="no node")


def shown(folder: Path, steps: str, fragment: str = "") -> dict[str, Any]:
    """Run the page's script and some steps; return what it showed, and what it asked for.

    The address of the page ends with the fragment.
    """
    html = files("tuner.control.web").joinpath("page.html").read_text(encoding="utf-8")
    found = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert found is not None
    program = folder / "page.js"
    page = PAGE.replace("HASH", json.dumps(fragment)).replace("STEPS", steps)
    program.write_text(page.replace("SCRIPT", json.dumps(found[1])))
    done = subprocess.run([str(NODE), str(program)], capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr == ""
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_answers_that_take_longer_than_a_turn_are_shown(tmp_path: Path) -> None:
    """The timer waits for them: it asks no second time meanwhile, and drops nothing."""
    steps = "for (let n = 0; n < 4; n++) { await turn(); await turn(); await turn(); await answer(); }"

    assert shown(tmp_path, steps) == {"shown": ["a", "a"], "asked": 2, "most": 5}


def test_a_click_waits_for_nothing(tmp_path: Path) -> None:
    """What was asked for before it is not shown any more."""
    click = "vm.runInThisContext(\"chosen = 'b'; refresh();\"); await settle();"
    steps = (
        f"await answer(); {click} await turn(); await answer(); await turn(); await answer(); await turn();"
    )

    assert shown(tmp_path, steps) == {"shown": ["b"], "asked": 2, "most": 6}


def test_after_a_failure_it_asks_again(tmp_path: Path) -> None:
    """In its next turn, whichever answer failed."""
    failures = "await fail(); await turn(); await answer(); await fail();"
    steps = f"{failures} await turn(); await answer(); await answer();"

    assert shown(tmp_path, steps) == {"shown": ["a"], "asked": 2, "most": 5}


@pytest.mark.parametrize(
    ("fragment", "first"), [("", "a"), ("#b", "b"), ("#%62", "b"), ("#gone", "a"), ("#%", "a")]
)
def test_the_address_names_the_target_that_is_shown(tmp_path: Path, fragment: str, first: str) -> None:
    """Whoever reloads the page, goes back or keeps a bookmark sees that; where there is none, the first."""
    other = "a" if first == "b" else "b"
    steps = "await answer(); await answer();"
    back = f"location.hash = '#{other}'; heard.hashchange(); await settle();"

    found = shown(tmp_path, f"{steps} {back} {steps}", fragment)

    assert found["shown"] == [first, other]
